#include "core/engine/prompt_media.h"

#include <algorithm>
#include <utility>

#include "core/sched/policy/encoder_share.h"

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

// Index of the next token to compute; for a waiting sequence, the number of its cached tokens.
std::int64_t PromptMedia::next_position(Generation& generation) {
  if (generation.state != Sequence::State::kWaiting) return generation.num_computed;
  return kv_.match_tokens(kv_.match(generation.table, generation.tokens, generation.prefix_limit()));
}

std::optional<PromptMedia::Wanted> PromptMedia::place(bool is_step_in_flight) {
  if (!encoding_) return std::nullopt;
  std::optional<Wanted> next;
  int best = 0;
  bool is_wanted = false;  // a sequence needs the piece that is being encoded
  bool has_arrived = false;
  for (Generation* generation : users_) {
    const Generation& each = *generation;
    if (each.has_ended() || each.state == Sequence::State::kNew) continue;  // a choice that is not forked yet
    const std::int64_t position = next_position(*generation);
    if (!is_step_in_flight && position >= each.request->media.back().end()) {
      std::ranges::fill(generation->media_rows, nullptr);
      has_arrived = has_arrived || each.awaits_media;
      generation->awaits_media = false;
      continue;
    }
    const MediaRun* const missing = find_rows(*generation, position);
    if (each.awaits_media && each.embedded_until(position) > position) {
      generation->awaits_media = false;
      has_arrived = true;
    }
    if (missing == nullptr) continue;
    is_wanted = is_wanted || encoding_->is_encoding({each.cache_salt, missing->key});
    const int rank = encoder_rank(each, last_key_);
    if (rank > best) next = Wanted{generation, missing};
    best = std::max(best, rank);
  }
  if (has_arrived) scheduler_.media_arrived();
  if (encoding_->is_encoding() && !is_wanted) encoding_->give_up();
  return next;
}

// Takes cached rows of the media after `position`, up to the first piece that is not cached: the result.
const MediaRun* PromptMedia::find_rows(Generation& generation, std::int64_t position) {
  const std::vector<MediaRun>& media = generation.request->media;
  for (std::size_t i = 0; i < media.size(); ++i) {
    if (media[i].end() <= position || generation.media_rows[i] != nullptr) continue;
    generation.media_rows[i] = encoding_->find({generation.cache_salt, media[i].key});
    if (generation.media_rows[i] == nullptr) return &media[i];
  }
  return nullptr;
}

double PromptMedia::most_step_seconds() const {
  return EncoderShare{target_itl_s_, scheduler_.max_step_seconds()}.most_of_model();
}

double PromptMedia::encoder_seconds(const StepPlan& plan) const {
  return EncoderShare{target_itl_s_, scheduler_.max_step_seconds()}.seconds_beside(plan);
}

PromptMedia::Failed PromptMedia::encode(const std::optional<Wanted>& next, double seconds) {
  if (!next) return {};
  try {
    if (!encoding_->is_encoding()) {
      last_key_ = next->generation->request->key_name;
      encoding_->begin({next->generation->cache_salt, next->run->key}, *next->run->media);
    }
    if (const auto rows = encoding_->advance(seconds)) give(rows);
  } catch (const std::exception& error) {
    encoding_->give_up();
    return fail(error.what());
  }
  return {};
}

void PromptMedia::give(const std::shared_ptr<const MediaRows>& rows) {
  for (Generation* generation : users_) {
    for (std::size_t i = 0; i < generation->media_rows.size(); ++i) {
      if (MediaEncoding::Name{generation->cache_salt, generation->request->media[i].key} == encoding_->name())
        generation->media_rows[i] = rows;
    }
  }
}

PromptMedia::Failed PromptMedia::fail(const char* why) const {
  Failed failed;
  for (const Generation* generation : users_) {
    const std::vector<MediaRun>& media = generation->request->media;
    const bool waits = !generation->has_ended() && std::ranges::any_of(media, [&](const MediaRun& run) {
      return run.end() > generation->num_computed &&
             MediaEncoding::Name{generation->cache_salt, run.key} == encoding_->name();
    });
    if (waits && std::ranges::find(failed.requests, generation->live) == failed.requests.end())
      failed.requests.push_back(generation->live);
  }
  failed.error = std::make_shared<const Error>(
      Error{ErrorKind::kInternal, std::string("The media could not be encoded: ") + why, "media_failed", {}});
  return failed;
}

void PromptMedia::report(EngineStats& stats) const {
  if (!encoding_) return;
  stats.encoder_ns = static_cast<std::uint64_t>(encoding_->seconds() * 1e9);
  stats.num_media_encoded = encoding_->num_encoded();
  stats.num_media_found = encoding_->num_found();
}

}  // namespace quire
