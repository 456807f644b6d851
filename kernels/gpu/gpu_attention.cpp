#include "kernels/gpu/gpu_attention.h"

#include <algorithm>

#include "kernels/attention_mask.h"
#include "kernels/check.h"

namespace quire::gpu {
namespace {

// Of the tokens before `end`.
std::int64_t partitions_to(std::int64_t end) {
  return (end + kPartitionTokens - 1) / kPartitionTokens;
}

}  // namespace

GpuAttention::GpuAttention(Device& device, StepUploads& uploads)
    : device_(device),
      uploads_(uploads),
      store_{&device.kernel("store_kv f32"), &device.kernel("store_kv f16"), &device.kernel("store_kv bf16"),
             &device.kernel("store_kv int8")},
      attend_{&device.kernel("attend f32"), &device.kernel("attend f16"), &device.kernel("attend bf16"),
              &device.kernel("attend int8")},
      tiles_f16_{{&device.kernel("attend_tiles f16 1 128"), &device.kernel("attend_tiles f16 2 128")},
                 {&device.kernel("attend_tiles f16 1 256"), &device.kernel("attend_tiles f16 2 256")}},
      tiles_bf16_{{&device.kernel("attend_tiles bf16 1 128"), &device.kernel("attend_tiles bf16 2 128")},
                  {&device.kernel("attend_tiles bf16 1 256"), &device.kernel("attend_tiles bf16 2 256")}},
      merge_(device.kernel("merge_partitions")) {}

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
                         .v_stride = v.stride};
  device_.launch(*store_[static_cast<std::size_t>(layout.dtype)], {.x = k.rows, .y = (kv.num_heads(layer) + 3) / 4},
                 args);
}

// What each row sees, and where its partitions' results go.
void GpuAttention::plan_rows(const AttentionBatch& batch, const AttentionOptions& options) {
  rows_.clear();
  num_partials_ = 0;
  for (std::size_t s = 0; s + 1 < batch.query_start.size(); ++s) {
    const std::int32_t end = batch.query_start[s + 1];
    for (std::int32_t row = batch.query_start[s]; row < end; ++row) {
      const std::int32_t position = batch.context_len[s] - (end - row);
      const TokenRange seen = seen_by(options, position, batch.context_len[s]);
      const auto count = static_cast<std::int32_t>(partitions_to(seen.end) - seen.begin / kPartitionTokens);
      rows_.push_back({static_cast<std::int32_t>(num_partials_), count, static_cast<std::int32_t>(seen.begin),
                       static_cast<std::int32_t>(seen.end), position});
      num_partials_ += count;
    }
  }
}

void GpuAttention::plan_items(const AttentionBatch& batch) {
  items_.clear();
  for (std::size_t s = 0; s + 1 < batch.query_start.size(); ++s) {
    for (std::int32_t row = batch.query_start[s]; row < batch.query_start[s + 1]; ++row) {
      const MergeItem& seen = rows_[static_cast<std::size_t>(row)];
      for (std::int32_t i = 0; i < seen.count; ++i)
        items_.push_back(
            {row, batch.block_table_start[s], seen.begin / kPartitionTokens + i, seen.begin, seen.end, seen.position});
    }
  }
}

void GpuAttention::plan_tiles(const AttentionBatch& batch, std::int64_t group) {
  few_.clear();
  many_.clear();
  for (std::size_t s = 0; s + 1 < batch.query_start.size(); ++s) {
    const std::int64_t vectors = (batch.query_start[s + 1] - batch.query_start[s]) * group;
    if (vectors <= kFewVectors) {
      add_tiles(batch, s, kFewVectors / group, few_);
    } else {
      add_tiles(batch, s, std::max<std::int64_t>(1, kManyVectors / group), many_);
    }
  }
}

// The partitions that some of each `rows_each` rows of a sequence see.
void GpuAttention::add_tiles(const AttentionBatch& batch, std::size_t sequence, std::int64_t rows_each,
                             std::vector<AttendTile>& out) {
  const std::int32_t end = batch.query_start[sequence + 1];
  for (std::int32_t row = batch.query_start[sequence]; row < end; row += static_cast<std::int32_t>(rows_each)) {
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
  args.heads_together = std::min(group, vectors);
  const std::int64_t parts = (group + args.heads_together - 1) / args.heads_together;
  device_.launch(kernel, {.x = static_cast<std::int64_t>(tiles.size()), .y = args.num_kv_heads * parts}, args);
}

void GpuAttention::run(const GpuKvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                       const AttentionOptions& options, MatrixView out) {
  plan_rows(batch, options);
  if (rows_.empty()) return;
  AttentionArgs args{.kv = kv.layer(layer),
                     .rows = uploads_.put(std::span<const MergeItem>(rows_)),
                     .block_tables = uploads_.put(batch.block_tables),
                     .q = q.data,
                     .q_stride = q.stride,
                     .num_heads = options.num_heads,
                     .num_kv_heads = kv.num_heads(layer),
                     .value_dim = out.cols / options.num_heads,
                     .value_in_key = options.value_in_key,
                     .scale = options.scale,
                     .softcap = options.softcap,
                     .slopes = slopes(options),
                     .sinks = options.sinks,
                     .out = out.data,
                     .out_stride = out.stride};
  QUIRE_CHECK(options.value_in_key ? args.value_dim <= args.kv.key_dim : args.value_dim == args.kv.value_dim,
              "attention: shapes do not fit");
  const auto floats = num_partials_ * args.num_heads * (args.value_dim + 2);
  if (static_cast<std::int64_t>(partials_.bytes()) < floats * 4) {
    device_.synchronize();  // what is enqueued may still use those that are given up
    partials_ = DeviceMemory();
    partials_ = DeviceMemory(device_, static_cast<std::size_t>(floats) * 4, "partitions of attention");
  }
  args.partials = partials_.as<float>();
  if (const TileKernels* kernels = tile_kernels(kv, args.kv.key_dim, args.value_dim)) {
    plan_tiles(batch, args.num_heads / args.num_kv_heads);
    attend_tiles(*kernels, args);
  } else {
    plan_items(batch);
    attend_items(kv, args);
  }
  device_.launch(merge_, {.x = static_cast<std::int64_t>(rows_.size()), .y = (args.num_heads + 3) / 4}, args);
}

}  // namespace quire::gpu
