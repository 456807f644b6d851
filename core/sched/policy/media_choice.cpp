#include "core/sched/policy/media_choice.h"

#include <algorithm>

namespace quire {

namespace {

int rank_of(const Sequence& sequence, const std::string& last_key) {
  if (sequence.state == Sequence::State::kRunning) return 3;
  return sequence.request->key_name != last_key ? 2 : 1;
}

bool is_piece(const MediaName& name, const Sequence& sequence, const MediaRun& run) {
  return name.second == run.key && name.first == sequence.cache_salt;
}

}  // namespace

std::int64_t next_position(Sequence& sequence, KvCache& kv) {
  if (sequence.state != Sequence::State::kWaiting) return sequence.num_computed;
  return kv.match_tokens(kv.match(sequence.table, sequence.tokens, sequence.prefix_limit()));
}

void give_media(Sequence& sequence, const MediaName& name, const std::shared_ptr<const MediaRows>& rows) {
  for (std::size_t i = 0; i < sequence.media_rows.size(); ++i) {
    if (is_piece(name, sequence, sequence.request->media[i])) sequence.media_rows[i] = rows;
  }
}

void MediaChoice::note(Sequence& sequence, std::int64_t position, const MediaRun* missing) {
  if (sequence.awaits_media && sequence.embedded_until(position) > position) {
    sequence.awaits_media = false;
    has_arrived_ = true;
  }
  if (missing == nullptr) return;
  is_wanted_ = is_wanted_ || (current_ != nullptr && is_piece(*current_, sequence, *missing));
  const int rank = rank_of(sequence, last_key_);
  if (rank <= best_) return;
  best_ = rank;
  sequence_ = &sequence;
  run_ = missing;
}

void MediaChoice::pass(Sequence& sequence) {
  std::ranges::fill(sequence.media_rows, nullptr);
  has_arrived_ = has_arrived_ || sequence.awaits_media;
  sequence.awaits_media = false;
}

namespace {

constexpr double kLongestSlice = 0.25;  // seconds, if steps are unbounded
constexpr double kLeastShare = 0.1;     // share of a step's bound for the encoder
constexpr double kStepShare = 0.5;      // largest share of a step's bound for the model while media are to be encoded

}  // namespace

double EncoderShare::most_of_model() const {
  return kStepShare * (target_s > 0.0 ? std::min(target_s, longest_s) : longest_s);
}

EncoderSlice EncoderShare::slice_beside(const StepPlan& plan) const {
  const bool streams = plan.num_streaming > 0;
  const double limit = streams && target_s > 0.0 ? target_s : std::min(longest_s, kLongestSlice);
  const double least = kLeastShare * limit;
  return {.most_s = std::clamp(limit - plan.predicted_seconds, least, limit), .least_s = least};
}

}  // namespace quire
