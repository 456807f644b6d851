#include "kernels/cpu/cpu_activations.h"

#include <algorithm>

namespace quire {
namespace {

// Values that are worth a thread's waking.
constexpr std::int64_t kPackGrain = 4096;

// Place of a row in its tile of blocks or floats.
struct TilePlace {
  std::int64_t first = 0;  // row of the tile
  TileRow at;
  std::int64_t padded = 0;  // rows of the tile, padding included
};

TilePlace place_of(std::int64_t row, std::int64_t rows) {
  const std::int64_t first = row / kRowTile * kRowTile;
  const std::int64_t valid = std::min<std::int64_t>(kRowTile, rows - first);
  return {first, {row - first, valid}, padded_tile_rows(valid)};
}

// The rows that pad a tile are zeros.
void clear_padding(float* tile, const TilePlace& last, std::int64_t depth) {
  for (std::int64_t row = last.at.rows; row < last.padded; ++row) {
    for (std::int64_t i = 0; i < depth; ++i)
      tile[i * last.padded + row] = 0.0f;
  }
}
void clear_padding(const KernelTable& kernels, ActBlock* tile, const TilePlace& last, std::int64_t num_blocks) {
  for (std::int64_t row = last.at.rows; row < last.padded; ++row)
    kernels.place_row(nullptr, num_blocks, {row, last.at.rows}, tile);
}

std::size_t padded_values(const PackJob& job) {
  const std::int64_t rows = (job.num_rows() + kAmxRowTile - 1) / kAmxRowTile * kAmxRowTile;
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(padded_depth(job.x.cols()));
}

}  // namespace

ActivationPacker::ActivationPacker(const KernelTable& kernels, ThreadPool& pool)
    : kernels_(kernels),
      pool_(pool),
      row_scratch_(static_cast<std::size_t>(pool.size())),
      made_row_(static_cast<std::size_t>(pool.size())),
      order_scratch_(static_cast<std::size_t>(pool.size())),
      ordered_row_(static_cast<std::size_t>(pool.size())) {}

void ActivationPacker::pack(std::span<const PackJob> jobs, std::vector<PackedActivations>& packed) {
  reserve_workers(jobs);
  make_shared_blocks(jobs);
  find_rooms(jobs);
  plan(jobs);
  pool_.run(std::ssize(pieces_), [&](int worker, std::int64_t index) {
    const Piece& piece = pieces_[static_cast<std::size_t>(index)];
    for (std::int64_t row = piece.begin; row < piece.end; ++row)
      pack_row(jobs[piece.job], rooms_[piece.job], row, worker);
  });
  packed.clear();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Room& room = rooms_[i];
    const ActBlock* blocks = room.blocks;
    if (blocks == nullptr && jobs[i].shares_blocks())
      blocks = shared_ + jobs[i].source(0) * (jobs[i].x.cols() / kQuantBlock);
    // Pairs of one row are in its own order.
    packed.push_back({blocks, room.floats, room.halves, room.pairs != nullptr ? room.pairs : room.halves});
  }
}

void ActivationPacker::reserve_workers(std::span<const PackJob> jobs) {
  std::int64_t made = 0;
  std::int64_t ordered = 0;
  for (const PackJob& job : jobs) {
    if (job.x.form != ProductInput::Form::kPlain) made = std::max(made, job.x.cols());
    if (!job.wanted.order.empty()) ordered = std::max(ordered, job.x.cols());
  }
  for (std::size_t i = 0; i < row_scratch_.size(); ++i) {
    if (made > 0) made_row_[i] = row_scratch_[i].get<float>(static_cast<std::size_t>(made));
    if (ordered > 0) ordered_row_[i] = order_scratch_[i].get<float>(static_cast<std::size_t>(ordered));
  }
}

void ActivationPacker::make_shared_blocks(std::span<const PackJob> jobs) {
  shared_ = nullptr;
  const auto first = std::ranges::find_if(jobs, &PackJob::shares_blocks);
  if (first == jobs.end()) return;
  const ProductInput& x = first->x;
  const std::int64_t row_blocks = x.cols() / kQuantBlock;
  auto* blocks = shared_scratch_.get<ActBlock>(static_cast<std::size_t>(x.x.rows * row_blocks));
  const std::int64_t step = std::max<std::int64_t>(1, kPackGrain / x.cols());
  pool_.run((x.x.rows + step - 1) / step, [&](int worker, std::int64_t piece) {
    for (std::int64_t row = piece * step; row < std::min(x.x.rows, (piece + 1) * step); ++row)
      kernels_.quantize_row(make_row(x, row, worker), x.cols(), {0, 1}, blocks + row * row_blocks);
  });
  shared_ = blocks;
}

void ActivationPacker::find_rooms(std::span<const PackJob> jobs) {
  std::size_t values = 0;
  for (const PackJob& job : jobs)
    values += padded_values(job);
  const auto wants = [&](bool WantedActivations::*form) {
    return std::ranges::any_of(jobs, [&](const PackJob& job) { return job.wanted.*form; });
  };
  const bool pairs = wants(&WantedActivations::pairs);
  Room next;
  if (wants(&WantedActivations::blocks)) next.blocks = blocks_scratch_.get<ActBlock>(values / kQuantBlock);
  if (wants(&WantedActivations::floats)) next.floats = floats_scratch_.get<float>(values);
  if (pairs || wants(&WantedActivations::halves)) next.halves = halves_scratch_.get<std::uint16_t>(values);
  if (pairs) next.pairs = pairs_scratch_.get<std::uint16_t>(values);
  rooms_.clear();
  for (const PackJob& job : jobs) {
    const bool in_place = job.shares_blocks() && job.num_rows() == 1;
    rooms_.push_back({job.wanted.blocks && !in_place ? next.blocks : nullptr, job.wanted.floats ? next.floats : nullptr,
                      job.wanted.halves || job.wanted.pairs ? next.halves : nullptr,
                      job.wanted.pairs && job.num_rows() > 1 ? next.pairs : nullptr});
    const std::size_t taken = padded_values(job);
    if (next.blocks != nullptr) next.blocks += taken / kQuantBlock;
    if (next.floats != nullptr) next.floats += taken;
    if (next.halves != nullptr) next.halves += taken;
    if (next.pairs != nullptr) next.pairs += taken;
  }
}

void ActivationPacker::plan(std::span<const PackJob> jobs) {
  pieces_.clear();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const PackJob& job = jobs[i];
    const Room& room = rooms_[i];
    if (room.blocks == nullptr && room.floats == nullptr && room.halves == nullptr) continue;
    // Rows of one tile of floats share cache lines: one thread gets a whole tile, and rows that are turned together.
    const std::int64_t rows = job.num_rows();
    const std::int64_t unit = room.pairs != nullptr                      ? kPairRows
                              : job.wanted.floats || job.shares_blocks() ? kRowTile
                                                                         : 1;
    const std::int64_t num_pieces =
        std::clamp<std::int64_t>(rows * job.x.cols() / kPackGrain, 1, (rows + unit - 1) / unit);
    const std::int64_t step = ((rows + num_pieces - 1) / num_pieces + unit - 1) / unit * unit;
    for (std::int64_t begin = 0; begin < rows; begin += step)
      pieces_.push_back({i, begin, std::min(rows, begin + step)});
  }
}

const float* ActivationPacker::make_row(const ProductInput& input, std::int64_t row, int worker) const {
  const float* from = input.x.data + row * input.x.stride;
  float* room = made_row_[static_cast<std::size_t>(worker)];
  switch (input.form) {
    case ProductInput::Form::kPlain: return from;
    case ProductInput::Form::kNormed: kernels_.rms_norm(from, input.norm_weight, input.eps, input.x.cols, room); break;
    case ProductInput::Form::kGated: kernels_.swiglu(from, from + input.cols(), input.cols(), room); break;
  }
  return room;
}

const float* ActivationPacker::in_order(std::span<const std::int32_t> order, const float* values, int worker) const {
  if (order.empty()) return values;
  float* room = ordered_row_[static_cast<std::size_t>(worker)];
  for (std::size_t i = 0; i < order.size(); ++i)
    room[i] = values[order[i]];
  return room;
}

void ActivationPacker::pack_row(const PackJob& job, const Room& room, std::int64_t row, int worker) const {
  const std::int64_t rows = job.num_rows();
  if (room.blocks != nullptr && job.shares_blocks()) {
    const TilePlace place = place_of(row, rows);
    const std::int64_t count = job.x.cols() / kQuantBlock;
    ActBlock* tile = room.blocks + place.first * count;
    kernels_.place_row(shared_ + job.source(row) * count, count, place.at, tile);
    if (row + 1 == rows) clear_padding(kernels_, tile, place, count);
    if (room.floats == nullptr && room.halves == nullptr) return;
  }
  pack_values(job, room, row, worker);
}

void ActivationPacker::pack_values(const PackJob& job, const Room& room, std::int64_t row, int worker) const {
  const std::int64_t rows = job.num_rows();
  const std::int64_t depth = job.x.cols();
  const TilePlace place = place_of(row, rows);
  const float* values = in_order(job.wanted.order, make_row(job.x, job.source(row), worker), worker);
  if (room.blocks != nullptr && !job.shares_blocks()) {
    ActBlock* tile = room.blocks + place.first * (depth / kQuantBlock);
    kernels_.quantize_row(values, depth, place.at, tile);
    if (row + 1 == rows) clear_padding(kernels_, tile, place, depth / kQuantBlock);
  }
  if (room.floats != nullptr) {
    float* tile = room.floats + place.first * padded_depth(depth);
    kernels_.spread_row(values, depth, place.padded, tile + place.at.index);
    if (row + 1 == rows) clear_padding(tile, place, padded_depth(depth));
  }
  if (room.halves != nullptr) kernels_.round_row({values, row, rows, depth}, room.halves);
  if (room.pairs != nullptr && (row % kPairRows == kPairRows - 1 || row + 1 == rows))
    kernels_.turn_rows({nullptr, row / kPairRows * kPairRows, rows, depth}, room.halves, room.pairs);
}

}  // namespace quire
