// TowerAttention: the attention of a tile's blocks: queries, keys and values with their norms and rotation, then the
// weighted sum among the rows that a row sees. Engine thread; memory is there from allocate() on.
#pragma once

#include <memory>
#include <vector>

#include "core/model/encode/run/row_attention.h"
#include "core/model/encode/run/row_stages.h"
#include "core/model/encode/run/tile_rows.h"
#include "core/model/encode/towers/tower_weights.h"

namespace quire {

// Features of a head in attention, which takes multiples of 8: zeros follow the head's own.
inline std::int64_t padded_head_dim_of(const TowerSpec& spec) {
  return (spec.head_dim + 7) / 8 * 8;
}

class TowerAttention {
 public:
  // Both arguments outlive the attention.
  TowerAttention(const TowerWeights& weights, const TileRows& rows);

  // Angles of all rows, which the blocks read.
  void add_angles(RowStages& stages);
  // x += attention(norm(x)) among rows from one bound to the next.
  void add_block(const TowerBlock& block, const std::vector<std::int64_t>& bounds, RowStages& stages);
  void allocate(Backend& backend);

 private:
  struct Rotation {
    std::unique_ptr<Buffer> cos;
    std::unique_ptr<Buffer> sin;
  };

  const TowerSpec& spec() const { return weights_.spec; }
  std::int64_t block_size() const;
  const RowAttention& among(const std::vector<std::int64_t>& bounds);
  void fill_angles(TowerOps& ops, std::size_t part, std::int64_t begin, std::int64_t end);
  void project(TowerOps& ops, const RowAttention& among, const TowerBlock& block, std::int64_t begin, std::int64_t end);
  void norm_heads(TowerOps& ops, const TowerBlock& block, MatrixView q, MatrixView k, MatrixView v) const;
  void rotate(Backend& backend, std::int64_t begin, MatrixView heads) const;
  void attend(TowerOps& ops, const RowAttention& among, const TowerBlock& block, std::int64_t begin, std::int64_t end);
  void copy_heads(TowerOps& ops, MatrixView from, std::int64_t from_dim, MatrixView to, std::int64_t to_dim) const;
  MatrixView queries(std::int64_t begin, std::int64_t end) const;

  const TowerWeights& weights_;
  const TileRows& rows_;
  std::int64_t padded_dim_;  // features of a head in `queries_` and `keys_`
  std::vector<std::unique_ptr<RowAttention>> among_;
  std::vector<Rotation> rotations_;  // one for each part of a head
  std::unique_ptr<Buffer> queries_;
  std::unique_ptr<KvStorage> keys_;  // keys and values of the current block
};

}  // namespace quire
