// TowerRun: the computation of one picture's rows, as stages over rows that are cut anywhere. Engine thread.
// Invariant: each stage's row depends on the stages before it alone, so the slices change no bit.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/model/encode/encoder.h"
#include "core/model/encode/patch_grid.h"
#include "core/model/encode/picture_plan.h"
#include "core/model/encode/tower_ops.h"

namespace quire {

// Attention among consecutive rows of a picture, from one bound to the next.
class RowAttention {
 public:
  RowAttention(std::vector<std::int64_t> bounds, std::int64_t block_size);
  std::int64_t num_blocks() const { return std::ssize(blocks_); }
  std::int64_t longest() const;  // rows that a row sees at most
  const std::vector<std::int64_t>& bounds() const { return bounds_; }

  // Keys and values of rows from first_row on; all are stored before run().
  void store(Backend& backend, KvStorage& storage, std::int64_t first_row, MatrixView k, MatrixView v) const;
  // q: rows from first_row on.
  void run(Backend& backend, const KvStorage& storage, std::int64_t first_row, std::int64_t num_heads, float scale,
           MatrixView q, MatrixView out) const;
  // Rows of q are those of another matrix, and each sees all rows.
  void run_across(Backend& backend, const KvStorage& storage, std::int64_t num_heads, float scale, MatrixView q,
                  MatrixView out) const;

 private:
  std::int64_t block_size_;
  std::vector<std::int64_t> bounds_;
  std::vector<std::int32_t> first_blocks_;  // by sequence
  std::vector<std::int32_t> slots_;         // by row
  std::vector<std::int32_t> blocks_;        // 0, 1, 2, ...
};

// Features of a head in attention, which takes multiples of 8: zeros follow the head's own.
inline std::int64_t padded_head_dim_of(const TowerSpec& spec) {
  return (spec.head_dim + 7) / 8 * 8;
}

// Memory of the run of the largest picture that gives at most so many rows: rows of the residual stream, queries, keys
// and values, angles and kept rows of the largest tile, and the results.
std::size_t most_run_bytes(const TowerSpec& spec, std::int64_t most_rows);

class TowerRun final : public EncoderRun {
 public:
  TowerRun(std::shared_ptr<const TowerWeights> weights, std::shared_ptr<const PreparedPicture> picture);
  std::int64_t work_left() const override { return work_left_; }
  void advance(std::int64_t work, Backend& backend) override;
  std::span<const float> rows() const override;
  std::int64_t num_rows() const { return media_->plan().layout.num_rows; }
  std::int64_t row_width() const;
  std::size_t bytes() const override;

 private:
  static constexpr std::int64_t kUnit = 32;  // least rows computed at once: fewer waste the products' tiles
  // Rows [begin, end) of the stage.
  using Compute = std::function<void(std::int64_t begin, std::int64_t end)>;
  struct Stage {
    std::int64_t num_rows = 0;
    std::int64_t row_work = 0;
    std::int64_t unit = 1;  // least rows computed at once
    Compute compute;
  };
  struct Rotation {
    std::unique_ptr<Buffer> cos;
    std::unique_ptr<Buffer> sin;
  };

  void begin_tile();
  void allocate();
  void add_stage(std::int64_t num_rows, std::int64_t row_work, Compute compute, std::int64_t unit = kUnit);
  const RowAttention& attention_in(const std::vector<std::int64_t>& bounds);
  std::int64_t block_size() const;
  void add_entry();
  void add_block(const TowerBlock& block, std::int64_t index);
  void add_attention(const TowerBlock& block, const std::vector<std::int64_t>& bounds);
  void add_feed_forward(const TowerBlock& block);
  void add_vit_merger(const VitMergerWeights& merger);  // vit_merger.cpp
  void add_branch(const TowerSteps& steps, std::int64_t first_column);
  void add_exit();
  void add_resampler(const ResamplerWeights& resampler);  // resampler.cpp
  void finish();

  void embed_patches(std::int64_t begin, std::int64_t end);
  void fill_pixels(std::int64_t begin, MatrixView out);
  void put_class_row();
  void fill_angles(std::size_t part, std::int64_t begin, std::int64_t end);
  void project(const RowAttention& rows, const TowerBlock& block, std::int64_t begin, std::int64_t end);
  void norm_heads(const TowerBlock& block, MatrixView q, MatrixView k, MatrixView v);
  void rotate(std::int64_t begin, MatrixView heads);
  void attend(const RowAttention& rows, const TowerBlock& block, std::int64_t begin, std::int64_t end);
  void add_output(const TowerProduct& product, const TowerNorm& norm, const Buffer* scale, MatrixView in,
                  MatrixView out);
  void feed_forward(const TowerBlock& block, std::int64_t begin, std::int64_t end);
  MatrixView last_rows(std::int64_t begin, std::int64_t end);
  void put_out(std::int64_t first_row, std::int64_t first_column, MatrixView rows);
  void store_for_queries(const ResamplerWeights& resampler, const RowAttention& rows, std::int64_t begin,
                         std::int64_t end);
  void answer_queries(const ResamplerWeights& resampler, const RowAttention& rows, std::int64_t begin,
                      std::int64_t end);
  void merge_squares(const VitMergerWeights& merger, std::int64_t begin, std::int64_t end);

  const TowerSpec& spec() const { return weights_->spec; }
  MatrixView x(std::int64_t begin, std::int64_t end) const;
  MatrixView queries(std::int64_t begin, std::int64_t end) const;
  std::int64_t padded_head_dim() const { return padded_head_dim_of(spec()); }
  bool pads_heads() const { return padded_head_dim() != spec().head_dim; }
  void copy_heads(MatrixView from, std::int64_t from_dim, MatrixView to, std::int64_t to_dim);

  std::shared_ptr<const TowerWeights> weights_;
  std::shared_ptr<const PreparedPicture> media_;
  std::int64_t work_left_ = 0;
  std::unique_ptr<TowerOps> ops_;
  std::vector<float> out_;  // [num_rows][row_width]

  // State of the tile that is computed now.
  std::size_t tile_ = 0;
  PatchGrid grid_;
  std::unique_ptr<GridPositions> positions_;
  std::int64_t num_rows_ = 0;  // rows of the tower's blocks, the class token included
  std::vector<Stage> stages_;
  std::size_t stage_ = 0;
  std::int64_t row_ = 0;
  std::unique_ptr<Buffer> x_;
  std::unique_ptr<Buffer> q_;
  std::unique_ptr<Buffer> kept_;
  std::vector<Rotation> rotations_;
  std::vector<std::unique_ptr<RowAttention>> attentions_;
  std::unique_ptr<KvStorage> keys_;         // keys and values of the current block
  std::unique_ptr<KvStorage> across_keys_;  // keys of the resampler
  std::vector<float> axis_waves_;           // the resampler's sines and cosines of row and column numbers
};

}  // namespace quire
