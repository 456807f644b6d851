#include "core/model/encode/run/tower_attention.h"

#include <algorithm>
#include <cmath>

#include "core/model/encode/run/tower_ops.h"
#include "core/model/parts/views.h"

namespace quire {

TowerAttention::TowerAttention(const TowerWeights& weights, const TileRows& rows)
    : weights_(weights), rows_(rows), padded_dim_(padded_head_dim_of(weights.spec)) {}

void TowerAttention::add_angles(RowStages& stages) {
  for (std::size_t part = 0; part < spec().rope.parts.size(); ++part) {
    // A sine costs some sixteen multiply-adds.
    stages.add(
        rows_.most, 16 * std::ssize(spec().rope.parts[part].angles),
        [this, part](TowerOps& ops, std::int64_t begin, std::int64_t end) { fill_angles(ops, part, begin, end); });
  }
}

void TowerAttention::add_block(const TowerBlock& block, const std::vector<std::int64_t>& bounds, RowStages& stages) {
  const RowAttention& seen = among(bounds);
  const std::int64_t width = spec().width;
  stages.add(rows_.count, outputs_of(block.qkv) * width,
             [this, &seen, &block](TowerOps& ops, std::int64_t begin, std::int64_t end) {
               project(ops, seen, block, begin, end);
             });
  stages.add(
      rows_.count, (2 * seen.longest() + width) * width,
      [this, &seen, &block](TowerOps& ops, std::int64_t begin, std::int64_t end) {
        attend(ops, seen, block, begin, end);
      },
      RowStages::kCostlyUnit);
}

void TowerAttention::allocate(Backend& backend) {
  for (const RopeSpec::Part& part : spec().rope.parts) {
    const std::int64_t angles = rows_.most * std::ssize(part.angles);
    rotations_.push_back({backend.allocate(angles), backend.allocate(angles)});
  }
  if (among_.empty()) return;
  queries_ = backend.allocate(rows_.most * spec().num_heads * padded_dim_);
  std::int64_t blocks = 0;
  for (const auto& seen : among_)
    blocks = std::max(blocks, seen->num_blocks());
  keys_ = allocate_rows(backend, blocks, block_size(), spec().num_heads, padded_dim_);
}

// Squares of four rows would leave most of a large block empty.
std::int64_t TowerAttention::block_size() const {
  return weights_.merger == nullptr ? 64 : 16;
}

const RowAttention& TowerAttention::among(const std::vector<std::int64_t>& bounds) {
  for (const auto& seen : among_) {
    if (seen->bounds() == bounds) return *seen;
  }
  among_.push_back(std::make_unique<RowAttention>(bounds, block_size()));
  return *among_.back();
}

MatrixView TowerAttention::queries(std::int64_t begin, std::int64_t end) const {
  const std::int64_t cols = spec().num_heads * padded_dim_;
  return {queries_->data() + begin * cols, end - begin, cols, cols};
}

void TowerAttention::copy_heads(TowerOps& ops, MatrixView from, std::int64_t from_dim, MatrixView to,
                                std::int64_t to_dim) const {
  GraphOps& graph = *ops.backend().graph();
  if (from_dim == to_dim) return graph.copy(from, to);
  if (to_dim > from_dim) {
    const std::span<float> zeros = ops.host_values(to.rows * to.cols);
    std::ranges::fill(zeros, 0.0F);
    ops.put(zeros, to);
  }
  const std::int64_t kept = std::min(from_dim, to_dim);
  for (std::int64_t head = 0; head < spec().num_heads; ++head)
    graph.copy(columns(from, head * from_dim, kept), columns(to, head * to_dim, kept));
}

void TowerAttention::project(TowerOps& ops, const RowAttention& among, const TowerBlock& block, std::int64_t begin,
                             std::int64_t end) {
  const std::int64_t width = spec().width;
  const MatrixView normed = ops.room(TowerOps::kNormed, end - begin, width);
  const MatrixView qkv = ops.room(TowerOps::kProjected, end - begin, 3 * width);
  ops.norm(block.attention_norm, rows_.at(begin, end), normed);
  ops.multiply_all(block.qkv, normed, qkv);
  const MatrixView q = columns(qkv, 0, width);
  const MatrixView k = columns(qkv, width, width);
  const MatrixView v = columns(qkv, 2 * width, width);
  norm_heads(ops, block, q, k, v);
  rotate(ops.backend(), begin, q);
  rotate(ops.backend(), begin, k);
  copy_heads(ops, q, spec().head_dim, queries(begin, end), padded_dim_);
  if (padded_dim_ == spec().head_dim) return among.store(ops.backend(), *keys_, begin, k, v);
  const std::int64_t cols = spec().num_heads * padded_dim_;
  const MatrixView padded = ops.room(TowerOps::kWide, end - begin, 2 * cols);
  copy_heads(ops, k, spec().head_dim, columns(padded, 0, cols), padded_dim_);
  copy_heads(ops, v, spec().head_dim, columns(padded, cols, cols), padded_dim_);
  among.store(ops.backend(), *keys_, begin, columns(padded, 0, cols), columns(padded, cols, cols));
}

void TowerAttention::norm_heads(TowerOps& ops, const TowerBlock& block, MatrixView q, MatrixView k,
                                MatrixView v) const {
  if (block.query_norm.is_there()) {
    if (block.norms_whole_width) {
      ops.norm(block.query_norm, q, q);
      ops.norm(block.key_norm, k, k);
    } else {
      ops.head_norm(block.query_norm, spec().num_heads, spec().head_dim, q);
      ops.head_norm(block.key_norm, spec().num_heads, spec().head_dim, k);
    }
  }
  if (spec().norms_values)
    ops.backend().head_rms_norm(v, spec().num_heads, spec().head_dim, weights_.ones->data(),
                                static_cast<float>(spec().eps));
}

void TowerAttention::fill_angles(TowerOps& ops, std::size_t part, std::int64_t begin, std::int64_t end) {
  const std::vector<RopeSpec::Angle>& angles = spec().rope.parts[part].angles;
  const std::int64_t pairs = std::ssize(angles);
  const std::int64_t count = (end - begin) * pairs;
  const std::span<float> made = ops.host_values(2 * count);  // cosines, then sines
  ops.for_rows(end - begin, 20 * pairs, [&](std::int64_t i) {
    const std::int64_t row = begin + i;
    const bool is_patch = row < rows_.grid.size();
    const PatchGrid::Place place = is_patch ? rows_.grid.places[static_cast<std::size_t>(row)] : PatchGrid::Place{};
    float* const cos = made.data() + i * pairs;
    float* const sin = cos + count;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const RopeSpec::Angle& angle = angles[static_cast<std::size_t>(pair)];
      const std::int32_t at = is_patch ? (angle.by_column ? place.column : place.row) + spec().rope.first_place : 0;
      cos[pair] = static_cast<float>(std::cos(at * angle.frequency));
      sin[pair] = static_cast<float>(std::sin(at * angle.frequency));
    }
  });
  const auto rows_of = [&](Buffer& buffer) {
    return MatrixView{buffer.data() + begin * pairs, end - begin, pairs, pairs};
  };
  ops.put(made.first(static_cast<std::size_t>(count)), rows_of(*rotations_[part].cos));
  ops.put(made.last(static_cast<std::size_t>(count)), rows_of(*rotations_[part].sin));
}

void TowerAttention::rotate(Backend& backend, std::int64_t begin, MatrixView heads) const {
  for (std::size_t i = 0; i < rotations_.size(); ++i) {
    const RopeSpec::Part& part = spec().rope.parts[i];
    const std::int64_t pairs = std::ssize(part.angles);
    const MatrixView cos{rotations_[i].cos->data() + begin * pairs, heads.rows, pairs, pairs};
    const MatrixView sin{rotations_[i].sin->data() + begin * pairs, heads.rows, pairs, pairs};
    const MatrixView turned{heads.data + part.offset, heads.rows, heads.cols, heads.stride};
    backend.rope(turned, spec().num_heads, spec().head_dim, part.style, cos, sin);
  }
}

void TowerAttention::attend(TowerOps& ops, const RowAttention& among, const TowerBlock& block, std::int64_t begin,
                            std::int64_t end) {
  MatrixView attended = ops.room(TowerOps::kProjected, end - begin, spec().num_heads * padded_dim_);
  among.run(ops.backend(), *keys_, begin, spec().num_heads, spec().attention_scale, queries(begin, end), attended);
  if (padded_dim_ != spec().head_dim) {
    const MatrixView own = ops.room(TowerOps::kNormed, end - begin, spec().width);
    copy_heads(ops, attended, padded_dim_, own, spec().head_dim);
    attended = own;
  }
  ops.add_product(block.attention_out, block.attention_post_norm, block.attention_scale.get(), attended,
                  rows_.at(begin, end));
}

}  // namespace quire
