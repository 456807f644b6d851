#include "core/model/encode/run/tower_run.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/device_step_bytes.h"

namespace quire {

namespace {

std::size_t run_bytes(const TowerSpec& spec, const PicturePlan& plan) {
  std::int64_t most_patches = 0;
  for (const PictureTile& tile : plan.tiles)
    most_patches = std::max(most_patches, tile.size.area() / (spec.patch_size * spec.patch_size));
  std::int64_t row = spec.width * (std::ssize(spec.kept_before) + 1) + 3 * spec.num_heads * padded_head_dim_of(spec);
  for (const RopeSpec::Part& part : spec.rope.parts)
    row += 2 * std::ssize(part.angles);
  if (spec.num_queries > 0) row += 2 * spec.text_width;  // keys and values of the resampler
  return static_cast<std::size_t>((most_patches + 1) * row + plan.layout.num_rows * spec.row_width()) * sizeof(float);
}

}  // namespace

std::size_t most_run_bytes(const TowerSpec& spec, std::int64_t most_rows, const Backend& backend) {
  constexpr std::int32_t kSide = 1 << 14;  // a side so long that every family shrinks the picture
  const std::int64_t side = spec.merge() * spec.patch_size;
  const std::int64_t most = std::max<std::int64_t>(most_rows, 1) * side * side;
  const std::size_t run =
      run_bytes(spec, plan_picture(spec, {kSide, kSide}, {.max_pixels = std::min(spec.picture.max_pixels, most)}));
  if (!backend.has_own_memory()) return run;
  constexpr std::int64_t kRoomWidths = 24;  // bound of the projections and the feed-forward
  return run + kPartialBytes +
         static_cast<std::size_t>(TowerOps::kMostOnDevice * kRoomWidths * spec.width) * sizeof(float);
}

TowerRun::TowerRun(std::shared_ptr<const TowerWeights> weights, std::shared_ptr<const PreparedPicture> picture)
    : weights_(std::move(weights)), picture_(std::move(picture)) {
  for (std::size_t index = 0; index < picture_->plan().tiles.size(); ++index)
    work_left_ += make_tile(index)->work_left();
}

std::unique_ptr<TileRun> TowerRun::make_tile(std::size_t index) {
  return std::make_unique<TileRun>(*weights_, picture_->tiles()[index], picture_->plan().tiles[index], rows_);
}

void TowerRun::advance(std::int64_t work, Backend& backend) {
  if (work_left_ == 0) return;
  if (ops_ == nullptr) {
    ops_ = std::make_unique<TowerOps>(backend);
    rows_.resize(static_cast<std::size_t>(picture_->num_rows() * picture_->row_width()));
  }
  QUIRE_CHECK(&ops_->backend() == &backend, "a run that changes its backend");
  for (std::int64_t rest = std::max<std::int64_t>(work, 1); rest > 0 && work_left_ > 0;) {
    if (tile_ == nullptr) {
      std::unique_ptr<TileRun> tile = make_tile(next_tile_);
      tile->allocate(backend);
      tile_ = std::move(tile);
      ++next_tile_;
    }
    const std::int64_t done = compute_piece(rest, backend);
    rest -= done;
    work_left_ -= done;
    if (tile_->work_left() == 0) tile_ = nullptr;
  }
  if (work_left_ == 0) finish();
}

// Enqueued work is over when this ends, also by an exception, so that its memory may be given up.
std::int64_t TowerRun::compute_piece(std::int64_t work, Backend& backend) {
  try {
    const std::int64_t done = tile_->compute_piece(work, *ops_);
    backend.synchronize();
    return done;
  } catch (...) {
    backend.synchronize();
    throw;
  }
}

void TowerRun::finish() {
  const std::int64_t width = picture_->row_width();
  for (const std::int64_t row : picture_->plan().break_rows)
    std::ranges::copy(weights_->break_row, rows_.begin() + row * width);
  ops_ = nullptr;
}

std::span<const float> TowerRun::rows() const {
  QUIRE_CHECK(work_left_ == 0, "rows of a picture that is not encoded yet");
  return rows_;
}

std::size_t TowerRun::bytes() const {
  return run_bytes(weights_->spec, picture_->plan());
}

}  // namespace quire
