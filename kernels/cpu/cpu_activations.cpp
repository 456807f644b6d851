#include "kernels/cpu/cpu_activations.h"

#include <algorithm>

namespace quire {
namespace {

// Values that are worth a thread's waking.
constexpr std::int64_t kPackGrain = 4096;

// Where a row lies among those of its tile of blocks or floats.
struct TilePlace {
  std::int64_t first = 0;  // row of the tile
  std::int64_t index = 0;
  std::int64_t rows = 0;  // of the tile, padding included
};

TilePlace place_of(std::int64_t row, std::int64_t rows) {
  const std::int64_t first = row / kRowTile * kRowTile;
  return {first, row - first, padded_tile_rows(std::min<std::int64_t>(kRowTile, rows - first))};
}

// The rows that pad a tile are zeros; `length` elements of each.
template <class T>
void clear_padding(T* tile, const TilePlace& last, std::int64_t length) {
  for (std::int64_t row = last.index + 1; row < last.rows; ++row) {
    for (std::int64_t i = 0; i < length; ++i)
      tile[i * last.rows + row] = T{};
  }
}

}  // namespace

ActivationPacker::ActivationPacker(const KernelTable& kernels, ThreadPool& pool)
    : kernels_(kernels),
      pool_(pool),
      row_scratch_(static_cast<std::size_t>(pool.size())),
      made_row_(static_cast<std::size_t>(pool.size())),
      order_scratch_(static_cast<std::size_t>(pool.size())),
      ordered_row_(static_cast<std::size_t>(pool.size())) {}

PackedActivations ActivationPacker::pack(const ProductInput& input, WantedActivations wanted) {
  const std::int64_t rows = input.x.rows;
  const std::int64_t depth = input.cols();
  const auto padded_rows = static_cast<std::size_t>((rows + kAmxRowTile - 1) / kAmxRowTile * kAmxRowTile);
  const auto values = padded_rows * static_cast<std::size_t>(padded_depth(depth));
  blocks_ = wanted.blocks ? blocks_scratch_.get<ActBlock>(values / kQuantBlock) : nullptr;
  floats_ = wanted.floats ? floats_scratch_.get<float>(values) : nullptr;
  halves_ = wanted.halves || wanted.pairs ? halves_scratch_.get<std::uint16_t>(values) : nullptr;
  pairs_ = wanted.pairs && rows > 1 ? pairs_scratch_.get<std::uint16_t>(values) : nullptr;
  if (input.form != ProductInput::Form::kPlain) {
    for (std::size_t i = 0; i < row_scratch_.size(); ++i)
      made_row_[i] = row_scratch_[i].get<float>(static_cast<std::size_t>(depth));
  }
  order_ = wanted.order;
  for (std::size_t i = 0; !order_.empty() && i < order_scratch_.size(); ++i)
    ordered_row_[i] = order_scratch_[i].get<float>(static_cast<std::size_t>(depth));
  // Rows of one tile of floats share cache lines: a tile stays with one thread. So do rows that are turned together.
  const std::int64_t unit = pairs_ != nullptr ? kPairRows : wanted.floats ? kRowTile : 1;
  const std::int64_t num_pieces = std::clamp<std::int64_t>(rows * depth / kPackGrain, 1, (rows + unit - 1) / unit);
  const std::int64_t step = ((rows + num_pieces - 1) / num_pieces + unit - 1) / unit * unit;
  pool_.run((rows + step - 1) / step, [&](int worker, std::int64_t piece) {
    for (std::int64_t row = piece * step; row < std::min(rows, (piece + 1) * step); ++row) {
      const float* made = make_row(input, row, made_row_[static_cast<std::size_t>(worker)]);
      pack_row(in_order(made, ordered_row_[static_cast<std::size_t>(worker)]), row, rows, depth);
    }
  });
  return {blocks_, floats_, halves_, pairs_ != nullptr ? pairs_ : halves_};  // pairs of one row are in its own order
}

const float* ActivationPacker::make_row(const ProductInput& input, std::int64_t row, float* room) const {
  const float* from = input.x.data + row * input.x.stride;
  switch (input.form) {
    case ProductInput::Form::kPlain: return from;
    case ProductInput::Form::kNormed: kernels_.rms_norm(from, input.norm_weight, input.eps, input.x.cols, room); break;
    case ProductInput::Form::kGated: kernels_.swiglu(from, from + input.cols(), input.cols(), room); break;
  }
  return room;
}

const float* ActivationPacker::in_order(const float* values, float* room) const {
  if (order_.empty()) return values;
  for (std::size_t i = 0; i < order_.size(); ++i)
    room[i] = values[order_[i]];
  return room;
}

void ActivationPacker::pack_row(const float* values, std::int64_t row, std::int64_t rows, std::int64_t depth) {
  const TilePlace place = place_of(row, rows);
  if (blocks_ != nullptr) {
    ActBlock* tile = blocks_ + place.first * (depth / kQuantBlock);
    kernels_.quantize_row(values, depth, place.rows, tile + place.index);
    if (row + 1 == rows) clear_padding(tile, place, depth / kQuantBlock);
  }
  if (floats_ != nullptr) {
    float* tile = floats_ + place.first * padded_depth(depth);
    kernels_.spread_row(values, depth, place.rows, tile + place.index);
    if (row + 1 == rows) clear_padding(tile, place, padded_depth(depth));
  }
  if (halves_ != nullptr) kernels_.round_row({values, row, rows, depth}, halves_);
  if (pairs_ != nullptr && (row % kPairRows == kPairRows - 1 || row + 1 == rows))
    kernels_.turn_rows({nullptr, row / kPairRows * kPairRows, rows, depth}, halves_, pairs_);
}

}  // namespace quire
