// Engine::Impl: media of prompts: chooses the piece to encode next and its time beside a step, and lets sequences
// continue once their rows are encoded.
#include <algorithm>
#include <utility>

#include "core/engine/engine_impl.h"
#include "core/sched/policy/encoder_share.h"

namespace quire {

Result<void> Engine::Impl::check_media(const Request& request) const {
  if (request.media.empty()) return {};
  if (media_ == nullptr)
    return failure(ErrorKind::kInvalidRequest, "The model cannot see: it takes no media.", "unsupported_media");
  const bool scores_prompt = request.sampling.num_prompt_logprobs.has_value();
  std::int64_t end = 0;
  for (const MediaRun& run : request.media) {
    const bool is_placed = run.begin >= end && run.num_rows > 0 && run.end() <= std::ssize(request.prompt);
    const bool fits = is_placed && run.media != nullptr && run.first_row >= 0 &&
                      run.first_row + run.num_rows <= run.media->num_rows() &&
                      run.media->row_width() % executor_->model().hidden_size() == 0;
    if (!fits) return failure(ErrorKind::kInternal, "The request's media do not fit its prompt.", "media_misplaced");
    end = run.end();
    if (!run.is_bidirectional) continue;
    if (scores_prompt)
      return invalid("prompt_logprobs is not supported beside media of this model", "prompt_logprobs",
                     "unsupported_media");
    if (run.num_rows > std::min<std::int64_t>(kMostRowsOfSpan, options_.scheduler.max_num_batched_tokens))
      return invalid("A piece of media has " + std::to_string(run.num_rows) +
                         " rows, more than one step computes: see scheduler.max_num_batched_tokens",
                     "messages", "media_too_large");
  }
  return {};
}

// Gives the media rows in the sequence's tokens names that live as long as the generation.
void Engine::Impl::name_media(Generation& generation) {
  const std::vector<MediaRun>& media = generation.request->media;
  if (media.empty()) return;
  generation.media_use.emplace(kv_.mutable_index().media(), with_media_, generation);
  generation.media_rows.resize(media.size());
  for (const MediaRun& run : media) {
    const TokenId first = generation.media_use->held.acquire({run.key, run.media->num_rows()});
    for (std::int64_t i = 0; i < run.num_rows; ++i)
      generation.tokens[static_cast<std::size_t>(run.begin + i)].value =
          static_cast<std::int32_t>(first.value + run.first_row + i);
  }
}

// Index of the next token to compute; for a waiting sequence, the number of its cached tokens.
std::int64_t Engine::Impl::next_position(Generation& generation) {
  if (generation.state != Sequence::State::kWaiting) return generation.num_computed;
  return kv_.match_tokens(kv_.match(generation.table, generation.tokens, generation.prefix_limit()));
}

// Gives sequences the rows that are encoded. Returns the next piece to encode: a running sequence's first, then one of
// another API key than the last piece's, then the first that waits.
std::optional<Engine::Impl::WantedMedia> Engine::Impl::place_media() {
  if (media_ == nullptr) return std::nullopt;
  std::optional<WantedMedia> next;
  int best = 0;
  bool is_wanted = false;  // a sequence needs the piece that is being encoded
  bool has_arrived = false;
  for (Generation* generation : with_media_) {
    const Generation& each = *generation;
    if (each.has_ended() || each.state == Sequence::State::kNew) continue;  // a choice that is not forked yet
    const std::vector<MediaRun>& media = each.request->media;
    const std::int64_t position = next_position(*generation);
    if (latest_ == nullptr && position >= media.back().end()) {
      std::ranges::fill(generation->media_rows, nullptr);
      has_arrived = has_arrived || each.awaits_media;
      generation->awaits_media = false;
      continue;
    }
    const MediaRun* missing = nullptr;
    for (std::size_t i = 0; i < media.size() && missing == nullptr; ++i) {
      if (media[i].end() <= position || each.media_rows[i] != nullptr) continue;
      generation->media_rows[i] = media_->find({each.cache_salt, media[i].key});
      if (each.media_rows[i] == nullptr) missing = &media[i];
    }
    if (each.awaits_media && each.embedded_until(position) > position) {
      generation->awaits_media = false;
      has_arrived = true;
    }
    if (missing == nullptr) continue;
    is_wanted = is_wanted || media_->is_encoding({each.cache_salt, missing->key});
    const int rank = encoder_rank(each, last_media_key_);
    if (rank > best) next = WantedMedia{generation, missing};
    best = std::max(best, rank);
  }
  if (has_arrived) scheduler_.media_arrived();
  if (media_->is_encoding() && !is_wanted) media_->give_up();
  return next;
}

// Most time for a step, so that part of its bound is left to the encoder.
double Engine::Impl::seconds_beside_encoder() const {
  return EncoderShare{options_.scheduler.target_itl_ms / 1000.0, scheduler_.max_step_seconds()}.most_of_model();
}

// Time for the encoder beside this step.
double Engine::Impl::encoder_seconds(const StepPlan& plan) const {
  return EncoderShare{options_.scheduler.target_itl_ms / 1000.0, scheduler_.max_step_seconds()}.seconds_beside(plan);
}

// Continues the current piece, else begins `next`, the latest result of place_media().
void Engine::Impl::encode(const std::optional<WantedMedia>& next, double seconds) {
  if (!next) return;
  try {
    if (!media_->is_encoding()) {
      last_media_key_ = next->generation->request->key_name;
      media_->begin({next->generation->cache_salt, next->run->key}, *next->run->media);
    }
    if (const auto rows = media_->advance(seconds)) give_rows(rows);
  } catch (const std::exception& error) {
    media_->give_up();
    fail_media(error.what());
  }
  stats_.encoder_ns = static_cast<std::uint64_t>(media_->seconds() * 1e9);
  stats_.num_media_encoded = media_->num_encoded();
  stats_.num_media_found = media_->num_found();
}

void Engine::Impl::give_rows(const std::shared_ptr<const MediaRows>& rows) {
  for (Generation* generation : with_media_) {
    for (std::size_t i = 0; i < generation->media_rows.size(); ++i) {
      if (MediaEncoding::Name{generation->cache_salt, generation->request->media[i].key} == media_->name())
        generation->media_rows[i] = rows;
    }
  }
}

// Requests that wait for the piece that was being encoded end with an error.
void Engine::Impl::fail_media(const char* why) {
  const MediaEncoding::Name failed_name = media_->name();
  std::vector<LiveRequest*> failed;
  for (const Generation* generation : with_media_) {
    const std::vector<MediaRun>& media = generation->request->media;
    const bool waits = !generation->has_ended() && std::ranges::any_of(media, [&](const MediaRun& run) {
      return run.end() > generation->num_computed &&
             MediaEncoding::Name{generation->cache_salt, run.key} == failed_name;
    });
    if (waits && std::ranges::find(failed, generation->live) == failed.end()) failed.push_back(generation->live);
  }
  const auto error = std::make_shared<const Error>(
      Error{ErrorKind::kInternal, std::string("The media could not be encoded: ") + why, "media_failed", {}});
  for (LiveRequest* live : failed)
    end_request(*live, FinishReason::kError, error);
}

}  // namespace quire
