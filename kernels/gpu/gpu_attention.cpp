#include "kernels/gpu/gpu_attention.h"

#include <algorithm>

#include "kernels/attention_mask.h"
#include "kernels/check.h"

namespace quire::gpu {
namespace {

// Number of partitions of the tokens before `end`.
std::int64_t partitions_to(std::int64_t end) {
  return (end + kPartitionTokens - 1) / kPartitionTokens;
}

}  // namespace

GpuAttention::GpuAttention(Device& device, StepUploads& uploads, std::size_t partial_bytes)
    : device_(device),
      uploads_(uploads),
      store_{&device.kernel("store_kv f32"), &device.kernel("store_kv f16"), &device.kernel("store_kv bf16"),
             &device.kernel("store_kv int8")},
      attend_{&device.kernel("attend f32"), &device.kernel("attend f16"), &device.kernel("attend bf16"),
              &device.kernel("attend int8")},
      tiles_f16_{{&device.kernel("attend_tiles f16 1 128"), &device.kernel("attend_tiles f16 4 128")},
                 {&device.kernel("attend_tiles f16 1 256"), &device.kernel("attend_tiles f16 4 256")}},
      tiles_bf16_{{&device.kernel("attend_tiles bf16 1 128"), &device.kernel("attend_tiles bf16 4 128")},
                  {&device.kernel("attend_tiles bf16 1 256"), &device.kernel("attend_tiles bf16 4 256")}},
      merge_(device.kernel("merge_partitions")),
      partial_bytes_(partial_bytes) {}

void GpuAttention::store(GpuKvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView k,
                         MatrixView v) {
  const KvLayout& layout = kv.layout();
  const auto known = [&](std::int32_t slot) { return slot >= 0 && slot < layout.num_blocks * layout.block_size; };
  QUIRE_CHECK(std::ranges::all_of(batch.slots, known), "KV position out of range");
  if (k.rows == 0 || kv.num_heads(layer) == 0) return;
  const StoreKvArgs args{.kv = kv.layer(layer),
                         .slots = uploads_.put(batch.slots),
                         .k = k.data,
                         .v = v.data,
                         .k_stride = k.stride,
                         .v_stride = v.stride,
                         .num_heads = kv.num_heads(layer)};
  constexpr int kEach = StoreKv<KvType::kF32>::kVectors;
  const std::int64_t vectors = (args.kv.value_dim > 0 ? 2 : 1) * args.num_heads;
  device_.launch(*store_[static_cast<std::size_t>(layout.dtype)], {.x = k.rows, .y = groups_of(vectors, kEach)}, args);
}

// Plans each row's tokens, the places of its partitions' results, and the rows computed together. row_bytes: the
// results of one partition.
void GpuAttention::plan_rows(const AttentionBatch& batch, const AttentionOptions& options, std::size_t row_bytes) {
  rows_.clear();
  ranges_.assign(1, {0, 0});
  num_partials_ = 0;
  std::int64_t num_partials = 0;  // partial results of the last range
  for (std::size_t s = 0; s + 1 < batch.query_start.size(); ++s) {
    const std::int32_t end = batch.query_start[s + 1];
    for (std::int32_t row = batch.query_start[s]; row < end; ++row) {
      const std::int32_t position = batch.context_len[s] - (end - row);
      const TokenRange seen = seen_by_row(options, batch, row, position, batch.context_len[s]);
      const auto count = static_cast<std::int32_t>(partitions_to(seen.end) - seen.begin / kPartitionTokens);
      if (num_partials > 0 && static_cast<std::size_t>(num_partials + count) * row_bytes > partial_bytes_) {
        ranges_.push_back({row, row});
        num_partials = 0;
      }
      rows_.push_back({static_cast<std::int32_t>(num_partials), count, static_cast<std::int32_t>(seen.begin),
                       static_cast<std::int32_t>(seen.end), position});
      ranges_.back().end = row + 1;
      num_partials += count;
      num_partials_ = std::max(num_partials_, num_partials);
    }
  }
}

void GpuAttention::plan_items(const AttentionBatch& batch, RowRange range) {
  items_.clear();
  for (std::size_t s = 0; s + 1 < batch.query_start.size(); ++s) {
    const std::int32_t end = std::min(batch.query_start[s + 1], range.end);
    for (std::int32_t row = std::max(batch.query_start[s], range.begin); row < end; ++row) {
      const MergeItem& seen = rows_[static_cast<std::size_t>(row)];
      for (std::int32_t i = 0; i < seen.count; ++i)
        items_.push_back(
            {row, batch.block_table_start[s], seen.begin / kPartitionTokens + i, seen.begin, seen.end, seen.position});
    }
  }
}

void GpuAttention::plan_tiles(const AttentionBatch& batch, RowRange range, std::int64_t group) {
  few_.clear();
  many_.clear();
  for (std::size_t s = 0; s + 1 < batch.query_start.size(); ++s) {
    const std::int64_t vectors = (batch.query_start[s + 1] - batch.query_start[s]) * group;
    if (vectors <= kFewVectors) {
      add_tiles(batch, s, range, kFewVectors / group, few_);
    } else {
      add_tiles(batch, s, range, std::max<std::int64_t>(1, kManyVectors / group), many_);
    }
  }
}

// The partitions that some of each `rows_each` rows of a sequence see, of its rows in the range.
void GpuAttention::add_tiles(const AttentionBatch& batch, std::size_t sequence, RowRange range, std::int64_t rows_each,
                             std::vector<AttendTile>& out) {
  const std::int32_t end = std::min(batch.query_start[sequence + 1], range.end);
  const std::int32_t begin = std::max(batch.query_start[sequence], range.begin);
  for (std::int32_t row = begin; row < end; row += static_cast<std::int32_t>(rows_each)) {
    AttendTile tile{.first_row = row,
                    .num_rows = std::min(static_cast<std::int32_t>(rows_each), end - row),
                    .first_block = batch.block_table_start[sequence],
                    .partition = 0,
                    .begin = rows_[static_cast<std::size_t>(row)].begin,
                    .end = 0};
    for (std::int32_t i = row; i < row + tile.num_rows; ++i) {
      tile.begin = std::min(tile.begin, rows_[static_cast<std::size_t>(i)].begin);
      tile.end = std::max(tile.end, rows_[static_cast<std::size_t>(i)].end);
    }
    for (tile.partition = tile.begin / kPartitionTokens; tile.partition < partitions_to(tile.end); ++tile.partition)
      out.push_back(tile);
  }
}

const float* GpuAttention::slopes(const AttentionOptions& options) {
  if (options.alibi <= 0.0f) return nullptr;
  slopes_.clear();
  for (std::int64_t head = 0; head < options.num_heads; ++head)
    slopes_.push_back(alibi_slope(options.alibi, head, options.num_heads));
  return uploads_.put(std::span<const float>(slopes_));
}

// Null where the kernel of single rows computes the layer.
const GpuAttention::TileKernels* GpuAttention::tile_kernels(const GpuKvStorage& kv, std::int64_t key_dim,
                                                            std::int64_t value_dim) const {
  const KvDType type = kv.layout().dtype;
  const bool fits = key_dim <= 256 && key_dim % 8 == 0 && value_dim % 8 == 0;
  if (!fits || (type != KvDType::kF16 && type != KvDType::kBF16)) return nullptr;
  const auto& kernels = type == KvDType::kF16 ? tiles_f16_ : tiles_bf16_;
  return &kernels[key_dim <= 128 ? 0 : 1];
}

void GpuAttention::attend_items(const GpuKvStorage& kv, AttentionArgs args) {
  args.items = uploads_.put(std::span<const AttendItem>(items_));
  const Kernel& attend = *attend_[static_cast<std::size_t>(kv.layout().dtype)];
  device_.launch(attend, {.x = static_cast<std::int64_t>(items_.size()), .y = args.num_kv_heads}, args);
}

void GpuAttention::attend_tiles(const TileKernels& kernels, AttentionArgs args) {
  launch_tiles(*kernels.few, few_, kFewVectors, args);
  launch_tiles(*kernels.many, many_, kManyVectors, args);
}

void GpuAttention::launch_tiles(const Kernel& kernel, const std::vector<AttendTile>& tiles, std::int64_t vectors,
                                AttentionArgs args) {
  if (tiles.empty()) return;
  const std::int64_t group = args.num_heads / args.num_kv_heads;
  args.tiles = uploads_.put(std::span<const AttendTile>(tiles));
  const std::int64_t together = std::min(group, vectors);
  const std::int64_t parts = groups_of(group, together);
  args.heads = {.group = static_cast<std::int32_t>(group),
                .together = static_cast<std::int32_t>(together),
                .parts = static_cast<std::int32_t>(parts),
                .inverse = static_cast<std::int32_t>((65536 + together - 1) / together)};
  device_.launch(kernel, {.x = static_cast<std::int64_t>(tiles.size()), .y = args.num_kv_heads * parts}, args);
}

void GpuAttention::run(const GpuKvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                       const AttentionOptions& options, MatrixView out) {
  const std::int64_t value_dim = out.cols / options.num_heads;
  const std::int64_t row_floats = options.num_heads * partial_floats(value_dim);  // floats of one partition's results
  plan_rows(batch, options, static_cast<std::size_t>(row_floats) * sizeof(float));
  if (rows_.empty()) return;
  AttentionArgs args{.kv = kv.layer(layer),
                     .heads = {},
                     .rows = uploads_.put(std::span<const MergeItem>(rows_)),
                     .block_tables = uploads_.put(batch.block_tables),
                     .q = q.data,
                     .q_stride = q.stride,
                     .num_heads = options.num_heads,
                     .num_kv_heads = kv.num_heads(layer),
                     .value_dim = value_dim,
                     .value_in_key = options.value_in_key,
                     .scale = options.scale,
                     .softcap = options.softcap,
                     .slopes = slopes(options),
                     .sinks = options.sinks,
                     .out = out.data,
                     .out_stride = out.stride};
  QUIRE_CHECK(options.value_in_key ? args.value_dim <= args.kv.key_dim : args.value_dim == args.kv.value_dim,
              "attention: shapes do not fit");
  const std::size_t bytes = static_cast<std::size_t>(num_partials_ * row_floats) * sizeof(float);
  grow(device_, partials_, bytes, "partitions of attention");
  args.partials = partials_.as<float>();
  for (const RowRange& range : ranges_)
    attend_rows(kv, batch, range, args);
}

void GpuAttention::attend_rows(const GpuKvStorage& kv, const AttentionBatch& batch, RowRange range,
                               AttentionArgs args) {
  if (const TileKernels* kernels = tile_kernels(kv, args.kv.key_dim, args.value_dim)) {
    plan_tiles(batch, range, args.num_heads / args.num_kv_heads);
    attend_tiles(*kernels, args);
  } else {
    plan_items(batch, range);
    attend_items(kv, args);
  }
  args.rows += range.begin;
  args.out += range.begin * args.out_stride;
  device_.launch(merge_, {.x = range.end - range.begin, .y = (args.num_heads + 3) / 4}, args);
}

}  // namespace quire::gpu
