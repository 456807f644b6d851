#include "kernels/cpu/cpu_linear.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {
namespace {

std::int64_t rows_per_tile(Activation kind) {
  return kind == Activation::kHalves || kind == Activation::kPairs ? kAmxRowTile : kRowTile;
}

// Weights of one piece stay in the second-level cache while all row tiles pass over them.
constexpr std::int64_t kPieceBytes = 192 << 10;
constexpr std::int64_t kPanelStep = 4;  // the widest register block, in panels

// Halves are multiplied in blocks of depth, whose rows are read again for every piece: the more panels the better.
constexpr std::int64_t kHalvesPanels = 16;

std::int64_t panels_per_piece(const CpuLinear::Part& part, bool blocks_of_depth, int threads) {
  const std::int64_t total = num_panels(part.rows);
  const std::int64_t fitting = blocks_of_depth
                                   ? kHalvesPanels
                                   : std::max(kPanelStep, kPieceBytes / static_cast<std::int64_t>(part.layout.bytes));
  const std::int64_t fair = total / (4 * threads);
  const std::int64_t wanted = std::max<std::int64_t>(1, std::min(fitting, fair));
  return wanted >= kPanelStep ? wanted / kPanelStep * kPanelStep : wanted;
}

// Logits of many rows are more than a cache keeps until they are sampled from: written around the caches, their lines
// are not read first. Narrower results are read soon by the next operation.
constexpr std::int64_t kLogitColumns = 1 << 16;
constexpr std::int64_t kKeptBytes = 8 << 20;

bool goes_past_caches(MatrixView out, const CpuLinear::Part& part) {
  constexpr std::int64_t kLineFloats = 64 / sizeof(float);
  const bool on_lines = reinterpret_cast<std::uintptr_t>(out.data + part.first_output) % 64 == 0;
  return part.rows >= kLogitColumns && out.rows * part.rows * 4 > kKeptBytes && on_lines &&
         out.stride % kLineFloats == 0;
}

}  // namespace

std::size_t CpuLinear::packed_bytes(std::span<const WeightSource> parts) {
  std::size_t bytes = 0;
  for (const WeightSource& source : parts)
    bytes += panel_layout(source.type, source.cols).bytes * static_cast<std::size_t>(num_panels(source.rows));
  return bytes;
}

CpuLinear::CpuLinear(std::span<const WeightSource> parts, std::span<const float> bias, NibbleOrder nibbles,
                     ThreadPool& pool, std::span<const std::byte> packed) {
  QUIRE_CHECK(!parts.empty(), "a linear operation without weights");
  in_features_ = parts[0].cols;
  for (const WeightSource& source : parts) {
    QUIRE_CHECK(source.cols == in_features_ && source.rows > 0, "stacked weights of different depth");
    QUIRE_CHECK(source.cols % dtype_info(source.type).block_size == 0, "weights cut through a block");
    CpuLinear::Part& part = parts_.emplace_back();
    part = {.type = source.type,
            .rows = source.rows,
            .first_output = out_features_,
            .layout = panel_layout(source.type, source.cols),
            .scale = source.scale};
    if (source.order != nullptr) part.order.assign(source.order, source.order + source.cols);
    out_features_ += source.rows;
  }
  QUIRE_CHECK(bias.empty() || static_cast<std::int64_t>(bias.size()) == out_features_, "bias of another length");
  bias_.assign(bias.begin(), bias.end());
  if (packed.empty()) memory_ = AlignedMemory(packed_bytes(parts));
  packed_ = packed.empty() ? std::span<const std::byte>(memory_.data(), memory_.size()) : packed;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts_[i].panels = packed_.data() + offset;
    const std::size_t stride = parts_[i].layout.bytes;
    const std::int64_t count = num_panels(parts[i].rows);
    if (packed.empty()) {
      pool.run(count, [&](int, std::int64_t panel) {
        pack_panel(parts[i], panel, nibbles, memory_.data() + offset + static_cast<std::size_t>(panel) * stride);
      });
    }
    offset += stride * static_cast<std::size_t>(count);
  }
}

LinearRunner::LinearRunner(const KernelTable& kernels, ThreadPool& pool)
    : kernels_(kernels), pool_(pool), packer_(kernels, pool), ranges_(pool.size()) {}

void LinearRunner::run(const CpuLinear& weights, const ProductInput& x, MatrixView out, bool accumulate) {
  QUIRE_CHECK(x.cols() == weights.in_features() && out.cols == weights.out_features() && x.x.rows == out.rows,
              "linear: shapes do not fit");
  if (out.rows == 0) return;
  std::span<const CpuLinear::Part> rest = weights.parts();
  while (!rest.empty()) {
    std::size_t count = 1;
    while (count < rest.size() && rest[count].order == rest[0].order)
      ++count;
    run_parts(weights, rest.first(count), x, out, accumulate);
    rest = rest.subspan(count);
  }
}

void LinearRunner::run_parts(const CpuLinear& weights, std::span<const CpuLinear::Part> parts, const ProductInput& x,
                             MatrixView out, bool accumulate) {
  WantedActivations wanted{.order = parts[0].order};
  for (const CpuLinear::Part& part : parts) {
    switch (kernels_.activation[static_cast<std::size_t>(part.type)]) {
      case Activation::kBlocks: wanted.blocks = true; break;
      case Activation::kFloats: wanted.floats = true; break;
      case Activation::kHalves: wanted.halves = true; break;
      case Activation::kPairs: wanted.pairs = true; break;
    }
  }
  plan(weights, parts, packer_.pack(x, wanted), out, accumulate);
  worker_scratch_.resize(static_cast<std::size_t>(pool_.size()));
  worker_memory_.resize(worker_scratch_.size());
  for (std::size_t i = 0; i < worker_scratch_.size(); ++i) {
    worker_memory_[i] = worker_scratch_[i].get<std::byte>(kernels_.gemm_scratch());
  }
  ranges_.divide(static_cast<std::int64_t>(pieces_.size()));
  pool_.run(ranges_.size(), [&](int worker, std::int64_t range) {
    for (std::int64_t index = ranges_.claim(range); index >= 0; index = ranges_.claim(range)) {
      const Piece& piece = pieces_[static_cast<std::size_t>(index)];
      kernels_.gemm[static_cast<std::size_t>(piece.type)](piece.args, piece.range,
                                                          worker_memory_[static_cast<std::size_t>(worker)]);
    }
    __builtin_ia32_sfence();  // what went past the caches is seen before the end of the range is
  });
}

void LinearRunner::plan(const CpuLinear& weights, std::span<const CpuLinear::Part> parts, const PackedActivations& x,
                        MatrixView out, bool accumulate) {
  pieces_.clear();
  const std::int64_t wanted_pieces = 4 * pool_.size();
  for (const CpuLinear::Part& part : parts) {
    const Activation kind = kernels_.activation[static_cast<std::size_t>(part.type)];
    const std::int64_t tile_rows = rows_per_tile(kind);
    const std::int64_t tiles = (out.rows + tile_rows - 1) / tile_rows;
    GemmArgs args{.weights = part.panels,
                  .panel_bytes = part.layout.bytes,
                  .quants_offset = part.layout.quants_offset,
                  .depth = weights.in_features(),
                  .rows = out.rows,
                  .blocks = x.blocks,
                  .floats = x.floats,
                  .halves = kind == Activation::kPairs ? x.pairs : x.halves,
                  .out = out.data + part.first_output,
                  .out_stride = out.stride,
                  .out_cols = part.rows,
                  .bias = weights.bias() == nullptr ? nullptr : weights.bias() + part.first_output,
                  .scale = part.scale,
                  .accumulate = accumulate,
                  .past_caches = !accumulate && goes_past_caches(out, part)};
    const std::int64_t total = num_panels(part.rows);
    const std::int64_t step = panels_per_piece(part, tile_rows == kAmxRowTile && tiles > 1, pool_.size());
    const std::int64_t columns = (total + step - 1) / step;
    const std::int64_t row_cuts = std::clamp<std::int64_t>(wanted_pieces / columns, 1, tiles);
    const std::int64_t tile_step = (tiles + row_cuts - 1) / row_cuts;
    for (std::int64_t panel = 0; panel < total; panel += step) {
      for (std::int64_t tile = 0; tile < tiles; tile += tile_step) {
        const GemmRange range{panel, std::min(total, panel + step), tile, std::min(tiles, tile + tile_step)};
        pieces_.push_back({args, part.type, range});
      }
    }
  }
}

}  // namespace quire
