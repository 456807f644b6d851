#include "kernels/gpu/gpu_attention.h"

#include <algorithm>

#include "kernels/attention_mask.h"
#include "kernels/check.h"

namespace quire::gpu {

GpuAttention::GpuAttention(Device& device, StepUploads& uploads)
    : device_(device),
      uploads_(uploads),
      store_{&device.kernel("store_kv f32"), &device.kernel("store_kv f16"), &device.kernel("store_kv bf16"),
             &device.kernel("store_kv int8")},
      attend_{&device.kernel("attend f32"), &device.kernel("attend f16"), &device.kernel("attend bf16"),
              &device.kernel("attend int8")},
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

void GpuAttention::plan(const AttentionBatch& batch, const AttentionOptions& options) {
  items_.clear();
  rows_.clear();
  for (std::size_t s = 0; s + 1 < batch.query_start.size(); ++s) {
    const std::int32_t end = batch.query_start[s + 1];
    for (std::int32_t row = batch.query_start[s]; row < end; ++row) {
      const std::int32_t position = batch.context_len[s] - (end - row);
      const TokenRange seen = seen_by(options, position, batch.context_len[s]);
      const auto first = static_cast<std::int32_t>(seen.begin / kPartitionTokens);
      const auto last = static_cast<std::int32_t>((seen.end + kPartitionTokens - 1) / kPartitionTokens);
      rows_.push_back({static_cast<std::int32_t>(items_.size()), last - first});
      for (std::int32_t partition = first; partition < last; ++partition)
        items_.push_back({row, batch.block_table_start[s], partition, static_cast<std::int32_t>(seen.begin),
                          static_cast<std::int32_t>(seen.end), position});
    }
  }
}

const float* GpuAttention::slopes(const AttentionOptions& options) {
  if (options.alibi <= 0.0f) return nullptr;
  slopes_.clear();
  for (std::int64_t head = 0; head < options.num_heads; ++head)
    slopes_.push_back(alibi_slope(options.alibi, head, options.num_heads));
  return uploads_.put(std::span<const float>(slopes_));
}

void GpuAttention::run(const GpuKvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                       const AttentionOptions& options, MatrixView out) {
  plan(batch, options);
  if (items_.empty()) return;
  AttentionArgs args{.kv = kv.layer(layer),
                     .items = uploads_.put(std::span<const AttendItem>(items_)),
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
  const auto floats = static_cast<std::int64_t>(items_.size()) * args.num_heads * (args.value_dim + 2);
  if (static_cast<std::int64_t>(partials_.bytes()) < floats * 4) {
    device_.synchronize();  // what is enqueued may still use those that are given up
    partials_ = DeviceMemory();
    partials_ = DeviceMemory(device_, static_cast<std::size_t>(floats) * 4, "partitions of attention");
  }
  args.partials = partials_.as<float>();
  const Kernel& attend = *attend_[static_cast<std::size_t>(kv.layout().dtype)];
  device_.launch(attend, {.x = static_cast<std::int64_t>(items_.size()), .y = args.num_kv_heads}, args);
  device_.launch(merge_, {.x = static_cast<std::int64_t>(rows_.size()), .y = (args.num_heads + 3) / 4}, args);
}

}  // namespace quire::gpu
