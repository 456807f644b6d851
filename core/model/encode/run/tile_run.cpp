#include "core/model/encode/run/tile_run.h"

#include "core/model/encode/run/tower_feed_forward.h"

namespace quire {

TileRun::TileRun(const TowerWeights& weights, const Picture& pixels, const PictureTile& tile,
                 std::span<float> picture_rows)
    : weights_(weights),
      rows_(weights.spec, tile.size),
      embedding_(weights, pixels, rows_),
      attention_(weights, rows_),
      outputs_(weights, rows_, tile, picture_rows) {
  embedding_.add_stages(stages_);
  attention_.add_angles(stages_);
  for (std::int64_t index = 0; index < weights.spec.num_blocks; ++index)
    add_block(weights.blocks[static_cast<std::size_t>(index)], index);
  if (weights.resampler != nullptr) {
    resampler_.emplace(weights, rows_, outputs_).add_stages(stages_);
  } else {
    outputs_.add_projector(stages_);
  }
}

void TileRun::add_block(const TowerBlock& block, std::int64_t index) {
  const TowerSpec& spec = weights_.spec;
  const bool is_windowed = spec.window_cells > 0 && (index + 1) % spec.window_pattern != 0;
  outputs_.add_kept(index, stages_);
  attention_.add_block(block, is_windowed ? rows_.grid.windows : std::vector<std::int64_t>{0, rows_.count}, stages_);
  add_feed_forward(block, rows_, stages_);
  outputs_.add_branches(index, stages_);
  if (index == spec.vit_merger_after) add_vit_merger(*weights_.merger, attention_, rows_, stages_);
}

void TileRun::allocate(Backend& backend) {
  rows_.allocate(backend);
  attention_.allocate(backend);
  outputs_.allocate(backend);
  if (resampler_) resampler_->allocate(backend);
}

}  // namespace quire
