// GpuKvStorage: the paged cache on a device, laid out [block][layer] as kv_cache.h describes a layer. Engine thread
// only. Invariant: a new storage is zeros.
#pragma once

#include <vector>

#include "kernels/backend.h"
#include "kernels/gpu/device/device_memory.h"
#include "kernels/gpu/kernels/kv_cache.h"

namespace quire::gpu {

// A block, and the places of its layers in it.
struct KvBlockShape {
  explicit KvBlockShape(const KvLayout& layout);

  std::vector<KvLayerView> layers;
  std::vector<std::int64_t> num_heads;
  std::size_t bytes = 0;
};

class GpuKvStorage final : public KvStorage {
 public:
  GpuKvStorage(Device& device, const KvLayout& layout);

  const KvLayout& layout() const override { return layout_; }
  std::size_t block_bytes() const override { return shape_.bytes; }
  void copy_block(std::int32_t source, std::int32_t destination) override;
  void read_block(std::int32_t block, std::span<std::byte> out) const override;
  void write_block(std::int32_t block, std::span<const std::byte> in) override;

  std::byte* block(std::int32_t number) const;
  KvLayerView layer(std::int64_t layer) const;
  std::int64_t num_heads(std::int64_t layer) const { return shape_.num_heads[static_cast<std::size_t>(layer)]; }

 private:
  Device& device_;
  KvLayout layout_;
  KvBlockShape shape_;
  DeviceMemory memory_;
};

}  // namespace quire::gpu
