#include "core/engine/prompt_media.h"

#include <algorithm>
#include <utility>

#include "core/sched/policy/media_choice.h"

namespace quire {

PromptMedia::PromptMedia(Backend* encoder, std::int64_t max_bytes, Executor& executor, KvCache& kv,
                         Scheduler& scheduler, const SchedulerOptions& options)
    : kv_(kv),
      scheduler_(scheduler),
      max_rows_(std::min<std::int64_t>(kMostRowsOfSpan, options.max_num_batched_tokens)),
      target_itl_s_(options.target_itl_ms / 1000.0),
      hidden_size_(executor.model().hidden_size()) {
  if (encoder != nullptr) encoding_.emplace(*encoder, executor, max_bytes);
}

Result<void> PromptMedia::check(const Request& request) const {
  if (request.media.empty()) return {};
  if (!encoding_)
    return failure(ErrorKind::kInvalidRequest, "The model cannot see: it takes no media.", "unsupported_media");
  const bool scores_prompt = request.sampling.num_prompt_logprobs.has_value();
  std::int64_t end = 0;
  for (const MediaRun& run : request.media) {
    const bool is_placed = run.begin >= end && run.num_rows > 0 && run.end() <= std::ssize(request.prompt);
    const bool fits = is_placed && run.media != nullptr && run.first_row >= 0 &&
                      run.first_row + run.num_rows <= run.media->num_rows() &&
                      run.media->row_width() % hidden_size_ == 0;
    if (!fits) return failure(ErrorKind::kInternal, "The request's media do not fit its prompt.", "media_misplaced");
    end = run.end();
    if (!run.is_bidirectional) continue;
    if (scores_prompt)
      return invalid("prompt_logprobs is not supported beside media of this model", "prompt_logprobs",
                     "unsupported_media");
    if (run.num_rows > max_rows_)
      return invalid("A piece of media has " + std::to_string(run.num_rows) +
                         " rows, more than one step computes: see scheduler.max_num_batched_tokens",
                     "messages", "media_too_large");
  }
  return {};
}

void PromptMedia::name_rows(Generation& generation) {
  const std::vector<MediaRun>& media = generation.request->media;
  if (media.empty()) return;
  generation.media_use.emplace(kv_.mutable_index().media(), users_, generation);
  generation.media_rows.resize(media.size());
  for (const MediaRun& run : media) {
    const TokenId first = generation.media_use->held.acquire({run.key, run.media->num_rows()});
    for (std::int64_t i = 0; i < run.num_rows; ++i)
      generation.tokens[static_cast<std::size_t>(run.begin + i)].value =
          static_cast<std::int32_t>(first.value + run.first_row + i);
  }
}

std::optional<PromptMedia::Wanted> PromptMedia::place(bool is_step_in_flight) {
  if (!encoding_) return std::nullopt;
  MediaChoice choice(last_key_, encoding_->is_encoding() ? &encoding_->name() : nullptr);
  const auto find = [&](const MediaNameView& name) { return encoding_->find(name); };
  for (Generation* generation : users_) {
    if (generation->has_ended() || generation->state == Sequence::State::kNew) continue;  // not forked yet
    const std::int64_t position = next_position(*generation, kv_);
    const bool is_behind = !is_step_in_flight && position >= generation->request->media.back().end();
    is_behind ? choice.pass(*generation) : choice.look(*generation, position, find);
  }
  if (choice.has_arrived()) scheduler_.media_arrived();
  if (!choice.is_current_wanted()) encoding_->give_up();
  if (choice.sequence() == nullptr) return std::nullopt;
  return Wanted{&Generation::of(*choice.sequence()), choice.run()};
}

PromptMedia::Failed PromptMedia::encode(const std::optional<Wanted>& next, const EncoderSlice& slice,
                                        const std::atomic<bool>& interrupt, const SharedError& no_memory) {
  if (!next) return {};
  bool has_begun = encoding_->is_encoding();
  SharedError error = attempt(no_memory, [&]() QUIRE_REQUIRES(kEngineThread) -> Result<void> {
    if (!has_begun) {
      last_key_ = next->generation->request->key_name;
      encoding_->begin({next->generation->cache_salt, next->run->key}, *next->run->media);
      has_begun = true;
    }
    if (const auto rows = encoding_->advance(slice, interrupt)) {
      for (Generation* generation : users_)
        give_media(*generation, encoding_->name(), rows);
    }
    return {};
  });
  if (error == nullptr) return {};
  encoding_->give_up();
  return {has_begun ? waits_for_current() : next->generation->live, std::move(error)};
}

LiveRequest* PromptMedia::waits_for_current() const {
  const auto& [salt, key] = encoding_->name();
  for (const Generation* generation : users_) {
    if (generation->has_ended() || generation->cache_salt != salt) continue;
    const bool waits = std::ranges::any_of(generation->request->media, [&](const MediaRun& run) {
      return run.key == key && run.end() > generation->num_computed;
    });
    if (waits) return generation->live;
  }
  return nullptr;
}

void PromptMedia::report(EngineStats& stats) const {
  if (!encoding_) return;
  stats.encoder_ns = static_cast<std::uint64_t>(encoding_->seconds() * 1e9);
  stats.num_media_encoded = encoding_->num_encoded();
  stats.num_media_found = encoding_->num_found();
}

}  // namespace quire
