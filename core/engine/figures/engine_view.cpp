#include "core/engine/figures/engine_view.h"

#include <algorithm>

namespace quire {

namespace {

constexpr std::chrono::milliseconds kListEvery{250};
constexpr std::chrono::seconds kReaderStays{10};  // after its last reading

}  // namespace

void EngineView::add_step(const StepSummary& step) {
  const std::lock_guard lock(mutex_);
  if (steps_.size() < kNumSteps) {
    steps_.push_back(step);
  } else {
    steps_[next_] = step;
  }
  next_ = (next_ + 1) % kNumSteps;
}

bool EngineView::wants_sequences(Clock::time_point now, bool are_any) const {
  const std::lock_guard lock(mutex_);
  if (now - read_ >= kReaderStays) return false;
  return now - listed_ >= kListEvery || (!are_any && !sequences_.empty());
}

void EngineView::set_sequences(std::vector<SequenceView> sequences, std::int64_t num_shared_blocks,
                               Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  sequences_.swap(sequences);
  num_shared_blocks_ = num_shared_blocks;
  listed_ = now;
}

EngineView::Reading EngineView::read(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (now - read_ >= kReaderStays) {  // the list is an earlier reader's, and out of date
    sequences_.clear();
    num_shared_blocks_ = 0;
  }
  read_ = now;
  Reading reading{steps_, sequences_, num_shared_blocks_};
  if (steps_.size() == kNumSteps) {
    std::rotate(reading.steps.begin(), reading.steps.begin() + static_cast<std::ptrdiff_t>(next_), reading.steps.end());
  }
  return reading;
}

}  // namespace quire
