#include "kernels/cpu/cpu_linear.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cpu/machine/processor.h"

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

// all_panels: of the whole operation.
std::int64_t panels_per_piece(const CpuLinear::Part& part, bool blocks_of_depth, std::int64_t all_panels, int threads) {
  const std::int64_t fitting = blocks_of_depth
                                   ? kHalvesPanels
                                   : std::max(kPanelStep, kPieceBytes / static_cast<std::int64_t>(part.layout.bytes));
  const std::int64_t fair = all_panels / (4 * threads);
  const std::int64_t wanted = std::clamp<std::int64_t>(fair, 1, std::min(fitting, num_panels(part.rows)));
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

// Calls body(begin, end) for each run of the part's panels that hold wanted outputs.
template <class Body>
void for_wanted_panels(const LinearJob& job, const CpuLinear::Part& part, const Body& body) {
  if (job.wanted.empty()) return body(std::int64_t{0}, num_panels(part.rows));
  for (const OutputRange& range : job.wanted) {
    const std::int64_t begin = std::max<std::int64_t>(range.begin - part.first_output, 0);
    const std::int64_t end = std::min(range.end - part.first_output, part.rows);
    if (begin < end) body(begin / kPanelCols, num_panels(end));
  }
}

std::int64_t num_wanted_panels(const LinearJob& job, const CpuLinear::Part& part) {
  std::int64_t count = 0;
  for_wanted_panels(job, part, [&](std::int64_t begin, std::int64_t end) { count += end - begin; });
  return count;
}

}  // namespace

std::size_t CpuLinear::packed_bytes(std::span<const WeightSource> parts) {
  std::size_t bytes = 0;
  for (const WeightSource& source : parts)
    bytes += panel_layout(source.type, source.cols).bytes * static_cast<std::size_t>(num_panels(source.rows));
  return bytes;
}

CpuLinear::CpuLinear(std::span<const WeightSource> parts, std::span<const float> bias,
                     std::span<const std::byte> packed)
    : packed_(packed) {
  QUIRE_CHECK(!parts.empty(), "a linear operation without weights");
  QUIRE_CHECK(packed.size() == packed_bytes(parts), "packed weights of another size");
  in_features_ = parts[0].cols;
  std::size_t offset = 0;
  for (const WeightSource& source : parts) {
    QUIRE_CHECK(source.cols == in_features_ && source.rows > 0, "stacked weights of different depth");
    QUIRE_CHECK(source.cols % dtype_info(source.type).block_size == 0, "weights cut through a block");
    CpuLinear::Part& part = parts_.emplace_back();
    part = {.type = source.type,
            .rows = source.rows,
            .first_output = out_features_,
            .layout = panel_layout(source.type, source.cols),
            .panels = packed.data() + offset,
            .scale = source.scale};
    if (source.order != nullptr) part.order.assign(source.order, source.order + source.cols);
    out_features_ += source.rows;
    offset += part.layout.bytes * static_cast<std::size_t>(num_panels(source.rows));
  }
  QUIRE_CHECK(bias.empty() || static_cast<std::int64_t>(bias.size()) == out_features_, "bias of another length");
  bias_.assign(bias.begin(), bias.end());
}

CpuLinear::CpuLinear(std::span<const WeightSource> parts, std::span<const float> bias, PanelForm form, ThreadPool* pool,
                     SharedBytes memory)
    : CpuLinear(parts, bias, {memory.get(), packed_bytes(parts)}) {
  memory_ = std::move(memory);
  std::byte* panels = memory_.get();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t stride = parts_[i].layout.bytes;
    const std::int64_t count = num_panels(parts[i].rows);
    const auto pack = [&](int, std::int64_t panel) {
      pack_panel(parts[i], panel, form, panels + static_cast<std::size_t>(panel) * stride);
    };
    if (pool != nullptr) {
      pool->run(count, pack);
    } else {
      for (std::int64_t panel = 0; panel < count; ++panel)
        pack(0, panel);
    }
    panels += stride * static_cast<std::size_t>(count);
  }
}

LinearRunner::LinearRunner(const KernelTable& kernels, ThreadPool& pool)
    : kernels_(kernels), pool_(pool), packer_(kernels, pool), ranges_(pool.size()) {}

void LinearRunner::run(const CpuLinear& weights, const ProductInput& x, MatrixView out, bool accumulate) {
  const LinearJob job{.weights = &weights, .x = x, .out = out};
  run_jobs({&job, 1}, accumulate);
}

void LinearRunner::run_some(const CpuLinear& weights, const ProductInput& x, std::span<const OutputRange> wanted,
                            MatrixView out) {
  const LinearJob job{.weights = &weights, .x = x, .out = out, .wanted = wanted};
  run_jobs({&job, 1}, false);
}

void LinearRunner::run_jobs(std::span<const LinearJob> jobs, bool accumulate) {
  progress_.clear();
  for (const LinearJob& job : jobs) {
    const std::int64_t rows = job.rows.data() == nullptr ? job.x.x.rows : std::ssize(job.rows);
    QUIRE_CHECK(job.x.cols() == job.weights->in_features() && job.out.cols == job.weights->out_features() &&
                    rows == job.out.rows,
                "linear: shapes do not fit");
    if (rows > 0) progress_.push_back({.job = &job, .parts = {}, .rest = job.weights->parts()});
  }
  while (!progress_.empty()) {
    run_some_parts(accumulate);
    std::erase_if(progress_, [](const Progress& progress) { return progress.rest.empty(); });
  }
}

WantedActivations LinearRunner::wanted_by(std::span<const CpuLinear::Part> parts) const {
  WantedActivations wanted{.order = parts[0].order};
  for (const CpuLinear::Part& part : parts) {
    switch (kernels_.activation[static_cast<std::size_t>(part.type)]) {
      case Activation::kBlocks: wanted.blocks = true; break;
      case Activation::kFloats: wanted.floats = true; break;
      case Activation::kHalves: wanted.halves = true; break;
      case Activation::kPairs: wanted.pairs = true; break;
    }
  }
  return wanted;
}

// Computes some of the remaining parts of each job.
void LinearRunner::run_some_parts(bool accumulate) {
  pack_jobs_.clear();
  for (Progress& progress : progress_) {
    const auto rest = progress.rest;
    std::size_t count = 1;
    while (count < rest.size() && rest[count].order == rest[0].order)
      ++count;
    progress.parts = rest.first(count);
    progress.rest = rest.subspan(count);
    pack_jobs_.push_back({progress.job->x, progress.job->rows, wanted_by(progress.parts)});
  }
  packer_.pack(pack_jobs_, packed_);
  plan(accumulate);
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
    fence_past_caches();
  });
}

void LinearRunner::plan(bool accumulate) {
  pieces_.clear();
  // The parts of a lone job are cut one by one.
  std::int64_t all_panels = 0;
  for (const Progress& progress : progress_) {
    for (const CpuLinear::Part& part : progress.parts)
      all_panels += num_wanted_panels(*progress.job, part);
  }
  const bool alone = progress_.size() == 1;
  for (std::size_t i = 0; i < progress_.size(); ++i) {
    const LinearJob& job = *progress_[i].job;
    for (const CpuLinear::Part& part : progress_[i].parts)
      plan_part(job, part, packed_[i], accumulate, alone ? num_wanted_panels(job, part) : all_panels);
  }
}

void LinearRunner::plan_part(const LinearJob& job, const CpuLinear::Part& part, const PackedActivations& x,
                             bool accumulate, std::int64_t all_panels) {
  const Activation kind = kernels_.activation[static_cast<std::size_t>(part.type)];
  const std::int64_t tile_rows = rows_per_tile(kind);
  const std::int64_t tiles = (job.out.rows + tile_rows - 1) / tile_rows;
  const float* bias = job.weights->bias();
  GemmArgs args{.weights = part.panels,
                .panel_bytes = part.layout.bytes,
                .quants_offset = part.layout.quants_offset,
                .depth = job.weights->in_features(),
                .rows = job.out.rows,
                .blocks = x.blocks,
                .floats = x.floats,
                .halves = kind == Activation::kPairs ? x.pairs : x.halves,
                .out = job.out.data + part.first_output,
                .out_stride = job.out.stride,
                .out_cols = part.rows,
                .bias = bias == nullptr ? nullptr : bias + part.first_output,
                .scale = part.scale,
                .accumulate = accumulate,
                .past_caches = !accumulate && goes_past_caches(job.out, part)};
  const std::int64_t step = panels_per_piece(part, tile_rows == kAmxRowTile && tiles > 1, all_panels, pool_.size());
  const std::int64_t wanted_pieces = 4 * pool_.size();
  const std::int64_t columns = (all_panels + step - 1) / step;
  const std::int64_t row_cuts = std::clamp<std::int64_t>(wanted_pieces / columns, 1, tiles);
  const std::int64_t tile_step = (tiles + row_cuts - 1) / row_cuts;
  for_wanted_panels(job, part, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t panel = begin; panel < end; panel += step) {
      for (std::int64_t tile = 0; tile < tiles; tile += tile_step) {
        const GemmRange range{panel, std::min(end, panel + step), tile, std::min(tiles, tile + tile_step)};
        pieces_.push_back({args, part.type, range});
      }
    }
  });
}

}  // namespace quire
