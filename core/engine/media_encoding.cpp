#include "core/engine/media_encoding.h"

#include <algorithm>
#include <chrono>

#include "core/request/request.h"
#include "kernels/check.h"

namespace quire {

namespace {

constexpr double kNewestSlice = 0.3;      // weight of the newest slice in the rate
constexpr double kFirstWork = 2e7;        // multiply-adds of a piece while the rate is not known
constexpr double kMostSliceGrowth = 4.0;  // bound of the rate, as a multiple of the last one
constexpr double kPieceSeconds = 0.005;   // computed between two looks for an arrival

}  // namespace

std::shared_ptr<const MediaRows> MediaEncoding::find(const MediaNameView& name) {
  const auto* const found = kept_.find(name);
  if (found == nullptr) return nullptr;
  ++num_found_;
  return *found;
}

void MediaEncoding::begin(MediaName name, const PreparedMedia& media) {
  QUIRE_CHECK(!is_encoding(), "one piece of media is encoded at a time");
  name_ = std::move(name);
  num_rows_ = media.num_rows();
  row_width_ = media.row_width();
  run_ = media.start();
}

// The clock decides when the slice is over, since stages differ in speed; the rate only sizes the pieces.
void MediaEncoding::compute(const EncoderSlice& slice, const std::atomic<bool>& interrupt, Clock::time_point began) {
  const bool is_known = work_per_second_ > 0.0;
  const auto piece = static_cast<std::int64_t>(is_known ? kPieceSeconds * work_per_second_ : kFirstWork);
  double taken_s = 0.0;
  do {
    run_->advance(std::max<std::int64_t>(piece, 1), encoder_);
    taken_s = std::chrono::duration<double>(Clock::now() - began).count();
  } while (run_->work_left() > 0 && taken_s + kPieceSeconds / 2 < slice.most_s &&
           (taken_s < slice.least_s || !interrupt.load(std::memory_order_relaxed)));
}

std::shared_ptr<const MediaRows> MediaEncoding::advance(const EncoderSlice& slice, const std::atomic<bool>& interrupt) {
  const std::int64_t before = run_->work_left();
  const Clock::time_point began = Clock::now();
  compute(slice, interrupt, began);
  const std::chrono::duration<double> took = Clock::now() - began;
  const auto done = static_cast<double>(before - run_->work_left());
  seconds_ += took.count();
  if (took.count() > 0.0 && done > 0.0) {
    const double rate = done / took.count();
    work_per_second_ = work_per_second_ == 0.0 ? rate
                                               : std::min(work_per_second_ + kNewestSlice * (rate - work_per_second_),
                                                          kMostSliceGrowth * work_per_second_);
  }
  if (run_->work_left() > 0) return nullptr;
  const std::span<const float> made = run_->rows();
  QUIRE_CHECK(std::ssize(made) == num_rows_ * row_width_, "an encoder makes the rows that it announced");
  auto rows = std::make_shared<MediaRows>();
  rows->buffer = executor_.upload(made);
  rows->rows = {rows->buffer->data(), num_rows_, row_width_, row_width_};
  run_.reset();
  ++num_encoded_;
  kept_.keep(name_, rows, num_rows_ * row_width_ * static_cast<std::int64_t>(sizeof(float)));
  return rows;
}

}  // namespace quire
