#include "core/sim/sim_encoder.h"

#include <algorithm>
#include <utility>

#include "core/sched/policy/media_choice.h"

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

void SimEncoder::add(Sequence& sequence, const std::vector<TraceImage>& images) {
  if (images.empty()) return;
  sequence.media_rows.resize(images.size());
  report_.num_images += std::ssize(images);
  seeing_.push_back({&sequence, images});
}

void SimEncoder::remove(const Sequence& sequence) noexcept {
  std::erase_if(seeing_, [&](const Seeing& each) { return each.sequence == &sequence; });
}

EncoderShare SimEncoder::share() const {
  return {options_.scheduler.target_itl_ms / 1000.0, scheduler_.max_step_seconds()};
}

bool SimEncoder::choose() {
  next_.reset();
  MediaChoice choice(last_key_, current_ ? &current_->name : nullptr);
  const auto find = [&](const MediaNameView& name) {
    const auto* const kept = kept_.find(name);
    return kept == nullptr ? nullptr : *kept;
  };
  for (const Seeing& seeing : seeing_)
    choice.look(*seeing.sequence, next_position(*seeing.sequence, kv_), find);
  if (choice.has_arrived()) scheduler_.media_arrived();
  if (!choice.is_current_wanted()) current_.reset();
  if (choice.sequence() == nullptr) return false;
  const Sequence& sequence = *choice.sequence();
  const auto seeing = std::ranges::find(seeing_, &sequence, &Seeing::sequence);
  const auto index = static_cast<std::size_t>(choice.run() - sequence.request->media.data());
  next_ = Wanted{{sequence.cache_salt, choice.run()->key},
                 sequence.request->key_name,
                 choice.run()->num_rows,
                 seeing->images[index].seconds};
  return true;
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
  for (const Seeing& seeing : seeing_)
    give_media(*seeing.sequence, current_->name, rows_);
  current_.reset();
  return taken;
}

bool SimEncoder::take_back(double seconds) {
  if (!current_) return false;
  current_->seconds += seconds;
  report_.encoder_s -= seconds;
  return true;
}

}  // namespace quire::sim
