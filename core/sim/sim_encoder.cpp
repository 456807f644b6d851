#include "core/sim/sim_encoder.h"

#include <algorithm>
#include <utility>

namespace quire::sim {

std::vector<MediaRun> media_of(const TraceRequest& request) {
  std::vector<MediaRun> runs;
  for (const TraceImage& image : request.images) {
    MediaRun run;
    run.begin = image.begin;
    run.num_rows = image.num_tokens;
    run.num_positions = image.num_tokens;
    run.key.low = static_cast<std::uint64_t>(image.id);
    runs.push_back(std::move(run));
  }
  return runs;
}

void SimEncoder::add(Sequence& sequence, std::vector<double> seconds) {
  if (sequence.request->media.empty()) return;
  sequence.media_rows.resize(sequence.request->media.size());
  report_.num_images += std::ssize(seconds);
  seeing_.push_back({&sequence, std::move(seconds)});
}

void SimEncoder::remove(const Sequence& sequence) noexcept {
  std::erase_if(seeing_, [&](const Seeing& each) { return each.sequence == &sequence; });
}

EncoderShare SimEncoder::share() const {
  return {options_.scheduler.target_itl_ms / 1000.0, scheduler_.max_step_seconds()};
}

bool SimEncoder::choose() {
  next_.reset();
  int best = 0;
  bool is_wanted = false;
  bool has_arrived = false;
  for (const Seeing& seeing : seeing_) {
    Sequence& sequence = *seeing.sequence;
    const std::int64_t position =
        sequence.state == Sequence::State::kWaiting
            ? kv_.match_tokens(kv_.match(sequence.table, sequence.tokens, sequence.prefix_limit()))
            : sequence.num_computed;
    const std::vector<MediaRun>& media = sequence.request->media;
    std::optional<Wanted> missing;
    for (std::size_t i = 0; i < media.size() && !missing; ++i) {
      if (media[i].end() <= position || sequence.media_rows[i] != nullptr) continue;
      MediaName name(sequence.cache_salt, media[i].key);
      if (const auto* const kept = kept_.find(name)) {
        sequence.media_rows[i] = *kept;
      } else {
        missing = Wanted{std::move(name), sequence.request->key_name, media[i].num_rows, seeing.seconds[i]};
      }
    }
    if (sequence.awaits_media && sequence.embedded_until(position) > position) {
      sequence.awaits_media = false;
      has_arrived = true;
    }
    if (!missing) continue;
    is_wanted = is_wanted || (current_ && current_->name == missing->name);
    const int rank = encoder_rank(sequence, last_key_);
    if (rank > best) next_ = std::move(missing);
    best = std::max(best, rank);
  }
  if (has_arrived) scheduler_.media_arrived();
  if (current_ && !is_wanted) current_.reset();
  return next_.has_value();
}

double SimEncoder::advance(double seconds) {
  if (!next_) return 0.0;
  if (!current_) {
    last_key_ = next_->key;
    current_ = std::move(next_);
  }
  const double taken = std::min(seconds, current_->seconds);
  current_->seconds -= taken;
  report_.encoder_s += taken;
  if (current_->seconds > 0.0) return taken;
  ++report_.num_images_encoded;
  kept_.keep(current_->name, rows_, current_->num_rows);
  give_rows(current_->name);
  current_.reset();
  return taken;
}

void SimEncoder::give_rows(const MediaName& name) noexcept {
  for (const Seeing& seeing : seeing_) {
    const std::vector<MediaRun>& media = seeing.sequence->request->media;
    for (std::size_t i = 0; i < media.size(); ++i) {
      if (media[i].key == name.second && seeing.sequence->cache_salt == name.first)
        seeing.sequence->media_rows[i] = rows_;
    }
  }
}

}  // namespace quire::sim
