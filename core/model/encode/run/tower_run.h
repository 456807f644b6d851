// TowerRun: the computation of one picture's rows, tile after tile. Engine thread.
// Invariant: a row depends on the rows of the stages before it alone, so slices change no bit.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/model/encode/encoder.h"
#include "core/model/encode/run/tile_run.h"
#include "core/model/encode/run/tower_ops.h"

namespace quire {

// Memory of the run of the largest picture that gives at most so many rows: rows of the residual stream, queries, keys
// and values, angles and kept rows of the largest tile, and the results; on a device also the rows of a piece and of
// attention's partitions, which are small on a CPU.
std::size_t most_run_bytes(const TowerSpec& spec, std::int64_t most_rows, const Backend& backend);

class TowerRun final : public EncoderRun {
 public:
  TowerRun(std::shared_ptr<const TowerWeights> weights, std::shared_ptr<const PreparedPicture> picture);
  std::int64_t work_left() const override { return work_left_; }
  void advance(std::int64_t work, Backend& backend) override;
  std::span<const float> rows() const override;
  std::size_t bytes() const override;

 private:
  std::unique_ptr<TileRun> make_tile(std::size_t index);
  std::int64_t compute_piece(std::int64_t work, Backend& backend);
  void finish();

  std::shared_ptr<const TowerWeights> weights_;
  std::shared_ptr<const PreparedPicture> picture_;
  std::int64_t work_left_ = 0;
  std::vector<float> rows_;  // [num_rows][row_width], from the first slice on

  std::unique_ptr<TowerOps> ops_;
  std::unique_ptr<TileRun> tile_;  // the tile that is computed now
  std::size_t next_tile_ = 0;
};

}  // namespace quire
