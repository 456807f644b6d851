#include "core/model/encode/tower_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/model/parts/views.h"
#include "kernels/check.h"

namespace quire {

namespace {

constexpr std::int64_t kMostRows = 256;  // most rows computed at once, so that activations stay in caches
constexpr std::int64_t kCostlyUnit = 8;  // least rows computed at once where each costs much
constexpr std::int64_t kBlockSize = 64;

std::int64_t outputs_of(std::span<const TowerProduct> products) {
  std::int64_t count = 0;
  for (const TowerProduct& product : products)
    count += product.outputs();
  return count;
}

std::size_t run_bytes(const TowerSpec& spec, const PicturePlan& plan) {
  std::int64_t most_patches = 0;
  for (const PictureTile& tile : plan.tiles)
    most_patches = std::max(most_patches, tile.size.area() / (spec.patch_size * spec.patch_size));
  std::int64_t row = spec.width * (std::ssize(spec.kept_before) + 1) + 3 * spec.num_heads * padded_head_dim_of(spec);
  for (const RopeSpec::Part& part : spec.rope.parts)
    row += 2 * std::ssize(part.angles);
  if (spec.num_queries > 0) row += 2 * spec.text_width;  // keys and values of the resampler
  const std::int64_t row_width = spec.text_width * (std::ssize(spec.branches) + 1);
  return static_cast<std::size_t>((most_patches + 1) * row + plan.layout.num_rows * row_width) * sizeof(float);
}

}  // namespace

std::size_t most_run_bytes(const TowerSpec& spec, std::int64_t most_rows) {
  constexpr std::int32_t kSide = 1 << 14;  // a side so long that every family shrinks the picture
  const std::int64_t side = spec.merge() * spec.patch_size;
  const std::int64_t most = std::max<std::int64_t>(most_rows, 1) * side * side;
  return run_bytes(spec, plan_picture(spec, {kSide, kSide}, {.max_pixels = std::min(spec.picture.max_pixels, most)}));
}

TowerRun::TowerRun(std::shared_ptr<const TowerWeights> weights, std::shared_ptr<const PreparedPicture> picture)
    : weights_(std::move(weights)), media_(std::move(picture)) {
  for (tile_ = 0; tile_ < media_->plan().tiles.size(); ++tile_) {
    begin_tile();
    for (const Stage& stage : stages_)
      work_left_ += stage.num_rows * stage.row_work;
  }
  tile_ = 0;
  stages_.clear();
}

std::int64_t TowerRun::row_width() const {
  return spec().text_width * (std::ssize(spec().branches) + 1);
}

std::size_t TowerRun::bytes() const {
  return run_bytes(spec(), media_->plan());
}

std::span<const float> TowerRun::rows() const {
  QUIRE_CHECK(work_left_ == 0, "rows of a picture that is not encoded yet");
  return out_;
}

MatrixView TowerRun::x(std::int64_t begin, std::int64_t end) const {
  return {x_->data() + begin * spec().width, end - begin, spec().width, spec().width};
}

MatrixView TowerRun::queries(std::int64_t begin, std::int64_t end) const {
  const std::int64_t cols = spec().num_heads * padded_head_dim();
  return {q_->data() + begin * cols, end - begin, cols, cols};
}

void TowerRun::copy_heads(MatrixView from, std::int64_t from_dim, MatrixView to, std::int64_t to_dim) {
  const std::int64_t kept = std::min(from_dim, to_dim);
  ops_->for_rows(from.rows, from.cols, [&](std::int64_t row) {
    for (std::int64_t head = 0; head < spec().num_heads; ++head) {
      float* const at = to.data + row * to.stride + head * to_dim;
      std::copy_n(from.data + row * from.stride + head * from_dim, kept, at);
      std::fill(at + kept, at + to_dim, 0.0F);
    }
  });
}

void TowerRun::advance(std::int64_t work, Backend& backend) {
  if (work_left_ == 0) return;
  if (ops_ == nullptr) {
    ops_ = std::make_unique<TowerOps>(backend);
    out_.resize(static_cast<std::size_t>(num_rows() * row_width()));
    begin_tile();
    allocate();
  }
  QUIRE_CHECK(&ops_->backend() == &backend, "a run that changes its backend");
  for (std::int64_t rest = std::max<std::int64_t>(work, 1); rest > 0 && work_left_ > 0;) {
    const Stage& stage = stages_[stage_];
    const std::int64_t wanted = rest / stage.row_work / stage.unit * stage.unit;
    const std::int64_t end = std::min(stage.num_rows, row_ + std::clamp(wanted, stage.unit, kMostRows));
    stage.compute(row_, end);
    const std::int64_t done = (end - row_) * stage.row_work;
    rest -= done;
    work_left_ -= done;
    row_ = end;
    if (row_ < stage.num_rows) continue;
    row_ = 0;
    if (++stage_ < stages_.size()) continue;
    if (++tile_ == media_->plan().tiles.size()) return finish();
    begin_tile();
    allocate();
  }
}

void TowerRun::add_stage(std::int64_t num_rows, std::int64_t row_work, Compute compute, std::int64_t unit) {
  if (num_rows > 0) stages_.push_back({num_rows, std::max<std::int64_t>(row_work, 1), unit, std::move(compute)});
}

// The stages of the next tile, in the order of the tower. Nothing is computed or allocated yet.
void TowerRun::begin_tile() {
  grid_ = make_patch_grid(spec(), media_->plan().tiles[tile_].size);
  positions_ = std::make_unique<GridPositions>(spec(), weights_->positions, grid_);
  num_rows_ = grid_.size() + (spec().class_token == ClassToken::kNone ? 0 : 1);
  attentions_.clear();
  stages_.clear();
  stage_ = 0;
  row_ = 0;
  add_entry();
  for (std::int64_t index = 0; index < spec().num_blocks; ++index)
    add_block(weights_->blocks[static_cast<std::size_t>(index)], index);
  add_exit();
}

// Allocates the tile's buffers; buffers of the tile before are reused if they are large enough.
void TowerRun::allocate() {
  Backend& backend = ops_->backend();
  const auto grow = [&](std::unique_ptr<Buffer>& buffer, std::int64_t floats) {
    if (floats > 0 && (buffer == nullptr || buffer->size() < floats)) buffer = backend.allocate(floats);
  };
  const std::int64_t rows = grid_.size() + (spec().class_token == ClassToken::kNone ? 0 : 1);
  grow(x_, rows * spec().width);
  grow(q_, rows * spec().num_heads * padded_head_dim());
  grow(kept_, grid_.size() * spec().width * std::ssize(spec().kept_before));
  rotations_.resize(spec().rope.parts.size());
  for (std::size_t i = 0; i < rotations_.size(); ++i) {
    grow(rotations_[i].cos, rows * std::ssize(spec().rope.parts[i].angles));
    grow(rotations_[i].sin, rows * std::ssize(spec().rope.parts[i].angles));
  }
  const auto grow_keys = [&](std::unique_ptr<KvStorage>& keys, std::int64_t blocks, std::int64_t heads,
                             std::int64_t dim) {
    if (blocks == 0 || (keys != nullptr && keys->layout().num_blocks >= blocks)) return;
    keys = backend.allocate_kv({.num_layers = 1,
                                .num_blocks = blocks,
                                .block_size = block_size(),
                                .num_kv_heads = heads,
                                .head_dim = dim,
                                .dtype = KvDType::kF32});
  };
  std::int64_t blocks = 0;
  for (const auto& rows_of_block : attentions_)
    blocks = std::max(blocks, rows_of_block->num_blocks());
  if (spec().num_blocks > 0) grow_keys(keys_, blocks, spec().num_heads, padded_head_dim());
  if (const ResamplerWeights* resampler = weights_->resampler.get(); resampler != nullptr)
    grow_keys(across_keys_, blocks, resampler->num_heads, resampler->width / resampler->num_heads);
}

// Squares of four rows would leave most of a large block empty.
std::int64_t TowerRun::block_size() const {
  return weights_->merger == nullptr ? kBlockSize : 16;
}

const RowAttention& TowerRun::attention_in(const std::vector<std::int64_t>& bounds) {
  for (const auto& rows : attentions_) {
    if (rows->bounds() == bounds) return *rows;
  }
  attentions_.push_back(std::make_unique<RowAttention>(bounds, block_size()));
  return *attentions_.back();
}

// --- patches
// ------------------------------------------------------------------------------------------------------------

void TowerRun::add_entry() {
  const std::int64_t inputs = kChannels * spec().patch_size * spec().patch_size;
  add_stage(grid_.size(), inputs * spec().width,
            [this](std::int64_t begin, std::int64_t end) { embed_patches(begin, end); });
  if (spec().class_token != ClassToken::kNone) add_stage(1, 1, [this](std::int64_t, std::int64_t) { put_class_row(); });
  for (std::size_t part = 0; part < spec().rope.parts.size(); ++part) {
    // A sine costs some sixteen multiply-adds.
    add_stage(num_rows_, 16 * std::ssize(spec().rope.parts[part].angles),
              [this, part](std::int64_t begin, std::int64_t end) { fill_angles(part, begin, end); });
  }
}

void TowerRun::embed_patches(std::int64_t begin, std::int64_t end) {
  const std::int64_t inputs = kChannels * spec().patch_size * spec().patch_size;
  const MatrixView pixels = ops_->room(TowerOps::kInput, end - begin, inputs);
  fill_pixels(begin, pixels);
  const MatrixView out = x(begin, end);
  ops_->multiply(weights_->patches, ops_->run_steps(weights_->before_patches, pixels), out);
  if (!weights_->after_patches.empty())
    ops_->backend().graph()->copy(ops_->run_steps(weights_->after_patches, out), out);
  if (spec().positions != LearnedPositions::kNone) {
    ops_->for_rows(out.rows, 4 * out.cols, [&](std::int64_t row) {
      positions_->add(grid_.places[static_cast<std::size_t>(begin + row)], out.cols, out.data + row * out.stride);
    });
  }
  if (!weights_->before_blocks.empty())
    ops_->backend().graph()->copy(ops_->run_steps(weights_->before_blocks, out), out);
}

// Each patch as [channel][row][column], normalised.
void TowerRun::fill_pixels(std::int64_t begin, MatrixView out) {
  const Picture& picture = media_->tiles()[tile_];
  const PictureSpec& rules = spec().picture;
  std::array<std::array<float, 256>, kChannels> values{};
  for (std::size_t c = 0; c < kChannels; ++c) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const float unit = static_cast<float>(byte) / 255.0F;
      values[c][byte] = ((rules.is_signed ? 2.0F * unit - 1.0F : unit) - rules.mean[c]) / rules.deviation[c];
    }
  }
  const std::int64_t side = spec().patch_size;
  ops_->for_rows(out.rows, out.cols, [&](std::int64_t row) {
    const PatchGrid::Place place = grid_.places[static_cast<std::size_t>(begin + row)];
    float* const to = out.data + row * out.stride;
    for (std::int64_t y = 0; y < side; ++y) {
      const std::uint8_t* const line =
          picture.rgb.data() + ((place.row * side + y) * picture.width + place.column * side) * kChannels;
      for (std::int64_t c = 0; c < kChannels; ++c) {
        float* const at = to + (c * side + y) * side;
        for (std::int64_t i = 0; i < side; ++i)
          at[i] = values[static_cast<std::size_t>(c)][line[i * kChannels + c]];
      }
    }
  });
}

// Puts the class row behind the patches, whatever its learned position.
void TowerRun::put_class_row() {
  const std::int64_t index = grid_.size();
  const MatrixView out = x(index, index + 1);
  const std::int64_t position = spec().class_token == ClassToken::kFirst ? 0 : index;
  const float* const learned = weights_->positions.values.data() + position * spec().width;
  for (std::int64_t i = 0; i < spec().width; ++i)
    out.data[i] = weights_->class_row[static_cast<std::size_t>(i)] + learned[i];
  if (!weights_->before_blocks.empty())
    ops_->backend().graph()->copy(ops_->run_steps(weights_->before_blocks, out), out);
}

// --- blocks
// -------------------------------------------------------------------------------------------------------------

void TowerRun::add_block(const TowerBlock& block, std::int64_t index) {
  const auto kept = std::ranges::find(spec().kept_before, index);
  if (kept != spec().kept_before.end()) {
    const std::int64_t column = (kept - spec().kept_before.begin()) * spec().width;
    add_stage(grid_.size(), spec().width, [this, column](std::int64_t begin, std::int64_t end) {
      const std::int64_t cols = spec().width * std::ssize(spec().kept_before);
      const MatrixView to{kept_->data() + begin * cols, end - begin, cols, cols};
      ops_->backend().graph()->copy(x(begin, end), columns(to, column, spec().width));
    });
  }
  const bool in_windows = spec().window_cells > 0 && (index + 1) % spec().window_pattern != 0;
  add_attention(block, in_windows ? grid_.windows : std::vector<std::int64_t>{0, num_rows_});
  add_feed_forward(block);
  for (std::size_t i = 0; i < spec().branches.size(); ++i) {
    if (spec().branches[i].after_block == index)
      add_branch(weights_->branches[i], static_cast<std::int64_t>(i + 1) * spec().text_width);
  }
  if (index == spec().vit_merger_after) add_vit_merger(*weights_->merger);
}

void TowerRun::add_attention(const TowerBlock& block, const std::vector<std::int64_t>& bounds) {
  const RowAttention& rows = attention_in(bounds);
  const std::int64_t width = spec().width;
  add_stage(num_rows_, outputs_of(block.qkv) * width,
            [this, &rows, &block](std::int64_t begin, std::int64_t end) { project(rows, block, begin, end); });
  add_stage(
      num_rows_, (2 * rows.longest() + width) * width,
      [this, &rows, &block](std::int64_t begin, std::int64_t end) { attend(rows, block, begin, end); }, kCostlyUnit);
}

void TowerRun::project(const RowAttention& rows, const TowerBlock& block, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = spec().width;
  const MatrixView normed = ops_->room(TowerOps::kNormed, end - begin, width);
  const MatrixView qkv = ops_->room(TowerOps::kProjected, end - begin, 3 * width);
  ops_->norm(block.attention_norm, x(begin, end), normed);
  ops_->multiply_all(block.qkv, normed, qkv);
  const MatrixView q = columns(qkv, 0, width);
  const MatrixView k = columns(qkv, width, width);
  const MatrixView v = columns(qkv, 2 * width, width);
  norm_heads(block, q, k, v);
  rotate(begin, q);
  rotate(begin, k);
  copy_heads(q, spec().head_dim, queries(begin, end), padded_head_dim());
  if (!pads_heads()) return rows.store(ops_->backend(), *keys_, begin, k, v);
  const std::int64_t cols = spec().num_heads * padded_head_dim();
  const MatrixView padded = ops_->room(TowerOps::kWide, end - begin, 2 * cols);
  copy_heads(k, spec().head_dim, columns(padded, 0, cols), padded_head_dim());
  copy_heads(v, spec().head_dim, columns(padded, cols, cols), padded_head_dim());
  rows.store(ops_->backend(), *keys_, begin, columns(padded, 0, cols), columns(padded, cols, cols));
}

void TowerRun::norm_heads(const TowerBlock& block, MatrixView q, MatrixView k, MatrixView v) {
  if (block.query_norm.is_there()) {
    if (block.norms_whole_width) {
      ops_->norm(block.query_norm, q, q);
      ops_->norm(block.key_norm, k, k);
    } else {
      ops_->head_norm(block.query_norm, spec().num_heads, spec().head_dim, q);
      ops_->head_norm(block.key_norm, spec().num_heads, spec().head_dim, k);
    }
  }
  if (spec().norms_values)
    ops_->backend().head_rms_norm(v, spec().num_heads, spec().head_dim, weights_->ones->data(),
                                  static_cast<float>(spec().eps));
}

void TowerRun::fill_angles(std::size_t part, std::int64_t begin, std::int64_t end) {
  const std::vector<RopeSpec::Angle>& angles = spec().rope.parts[part].angles;
  const std::int64_t pairs = std::ssize(angles);
  ops_->for_rows(end - begin, 20 * pairs, [&](std::int64_t i) {
    const std::int64_t row = begin + i;
    const bool is_patch = row < grid_.size();
    const PatchGrid::Place place = is_patch ? grid_.places[static_cast<std::size_t>(row)] : PatchGrid::Place{};
    float* const cos = rotations_[part].cos->data() + row * pairs;
    float* const sin = rotations_[part].sin->data() + row * pairs;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const RopeSpec::Angle& angle = angles[static_cast<std::size_t>(pair)];
      const std::int32_t at = is_patch ? (angle.by_column ? place.column : place.row) + spec().rope.first_place : 0;
      cos[pair] = static_cast<float>(std::cos(at * angle.frequency));
      sin[pair] = static_cast<float>(std::sin(at * angle.frequency));
    }
  });
}

void TowerRun::rotate(std::int64_t begin, MatrixView heads) {
  for (std::size_t i = 0; i < rotations_.size(); ++i) {
    const RopeSpec::Part& part = spec().rope.parts[i];
    const std::int64_t pairs = std::ssize(part.angles);
    const MatrixView cos{rotations_[i].cos->data() + begin * pairs, heads.rows, pairs, pairs};
    const MatrixView sin{rotations_[i].sin->data() + begin * pairs, heads.rows, pairs, pairs};
    const MatrixView turned{heads.data + part.offset, heads.rows, heads.cols, heads.stride};
    ops_->backend().rope(turned, spec().num_heads, spec().head_dim, part.style, cos, sin);
  }
}

void TowerRun::attend(const RowAttention& rows, const TowerBlock& block, std::int64_t begin, std::int64_t end) {
  MatrixView attended = ops_->room(TowerOps::kProjected, end - begin, spec().num_heads * padded_head_dim());
  rows.run(ops_->backend(), *keys_, begin, spec().num_heads, spec().attention_scale, queries(begin, end), attended);
  if (pads_heads()) {
    const MatrixView own = ops_->room(TowerOps::kNormed, end - begin, spec().width);
    copy_heads(attended, padded_head_dim(), own, spec().head_dim);
    attended = own;
  }
  add_output(block.attention_out, block.attention_post_norm, block.attention_scale.get(), attended, x(begin, end));
}

// x += scale * norm(product(in)); norm and scale only if the block has them.
void TowerRun::add_output(const TowerProduct& product, const TowerNorm& norm, const Buffer* scale, MatrixView in,
                          MatrixView out) {
  if (!norm.is_there() && scale == nullptr && product.output.is_open() && product.late_bias == nullptr)
    return ops_->multiply(product, in, out, true);
  const MatrixView made = ops_->room(TowerOps::kOut, out.rows, out.cols);
  ops_->multiply(product, in, made);
  if (norm.is_there()) ops_->norm(norm, made, made);
  ops_->add_scaled(scale, made, out);
}

void TowerRun::add_feed_forward(const TowerBlock& block) {
  const std::int64_t work = (outputs_of(block.up) + block.down.inputs()) * spec().width;
  add_stage(num_rows_, work, [this, &block](std::int64_t begin, std::int64_t end) { feed_forward(block, begin, end); });
}

void TowerRun::feed_forward(const TowerBlock& block, std::int64_t begin, std::int64_t end) {
  const std::int64_t inner = block.down.inputs();
  const std::int64_t wide = outputs_of(block.up);
  const MatrixView normed = ops_->room(TowerOps::kNormed, end - begin, spec().width);
  const MatrixView up = ops_->room(TowerOps::kWide, end - begin, wide);
  ops_->norm(block.ffn_norm, x(begin, end), normed);
  ops_->multiply_all(block.up, normed, up);
  const MatrixView activated = ops_->room(TowerOps::kActivated, end - begin, inner);
  const bool is_gated = wide == 2 * inner;
  ops_->activate(spec().activation, columns(up, 0, inner), is_gated ? columns(up, inner, inner) : MatrixView{},
                 activated);
  add_output(block.down, block.ffn_post_norm, block.ffn_scale.get(), activated, x(begin, end));
}

// --- projectors
// ---------------------------------------------------------------------------------------------------------

void TowerRun::add_branch(const TowerSteps& steps, std::int64_t first_column) {
  const std::int64_t merged = merged_rows(steps);
  const Compute compute = [this, &steps, merged, first_column](std::int64_t begin, std::int64_t end) {
    put_out(begin, first_column, ops_->run_steps(steps, x(begin * merged, end * merged)));
  };
  add_stage(grid_.size() / merged, work_of(steps), compute, kCostlyUnit);
}

void TowerRun::add_exit() {
  if (weights_->resampler != nullptr) return add_resampler(*weights_->resampler);
  const std::int64_t merged = merged_rows(weights_->projector);
  const std::int64_t patches = num_rows_ - (spec().class_token == ClassToken::kNone ? 0 : 1);
  const Compute compute = [this, merged](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = spec().skipped_rows;
    const MatrixView last = last_rows(first + begin * merged, first + end * merged);
    put_out(begin, 0, ops_->run_steps(weights_->projector, last));
  };
  add_stage(patches / merged, work_of(weights_->projector), compute, kCostlyUnit);
}

// The last block's rows, normed, behind those that were kept.
MatrixView TowerRun::last_rows(std::int64_t begin, std::int64_t end) {
  const MatrixView last = ops_->run_steps(weights_->last_norm, x(begin, end));
  if (spec().kept_before.empty()) return last;
  const std::int64_t kept = spec().width * std::ssize(spec().kept_before);
  const MatrixView all = ops_->room(TowerOps::kInput, end - begin, kept + spec().width);
  ops_->backend().graph()->copy({kept_->data() + begin * kept, end - begin, kept, kept}, columns(all, 0, kept));
  ops_->backend().graph()->copy(last, columns(all, kept, spec().width));
  return all;
}

// Rows of cells, from first_row on in the tower's order, to their places among the piece's rows.
void TowerRun::put_out(std::int64_t first_row, std::int64_t first_column, MatrixView rows) {
  const PictureTile& tile = media_->plan().tiles[tile_];
  const std::int64_t width = row_width();
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    std::int64_t place = first_row + i;
    if (spec().num_queries == 0) place = grid_.cell_rows[static_cast<std::size_t>(place)];
    if (!tile.places.empty()) place = tile.places[static_cast<std::size_t>(place)];
    if (place < 0) continue;
    std::memcpy(out_.data() + (tile.first_row + place) * width + first_column, rows.data + i * rows.stride,
                static_cast<std::size_t>(rows.cols) * sizeof(float));
  }
}

void TowerRun::finish() {
  for (const std::int64_t row : media_->plan().break_rows)
    std::ranges::copy(weights_->break_row, out_.begin() + row * row_width());
  x_ = nullptr;
  q_ = nullptr;
  kept_ = nullptr;
  rotations_.clear();
  keys_ = nullptr;
  across_keys_ = nullptr;
  ops_ = nullptr;
}

}  // namespace quire
