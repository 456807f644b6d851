// CpuKvStorage: the paged K and V, laid out [layer][block][K heads | V heads], one head as KvHeadView describes. Engine
// thread only. Invariant: a new storage is zeros; the padding of V is never written.
#pragma once

#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/machine/memory.h"

namespace quire {

// V's size with its padding.
std::int64_t padded_value_dim(KvDType dtype, std::int64_t value_dim);

// Sizes of one block of one layer.
struct KvGeometry {
  KvGeometry(const KvLayout& layout, std::int64_t layer);

  KvLayerShape shape;
  std::size_t key_bytes = 0;    // K of a head
  std::size_t value_bytes = 0;  // V of a head
  std::size_t layer_bytes = 0;  // all heads of a block in this layer
  std::int64_t padded_dim = 0;  // padded floats of V
  std::size_t before = 0;       // bytes of one block in the layers before this one
};

// The geometry of each layer of the layout.
std::vector<KvGeometry> kv_geometry(const KvLayout& layout);
std::size_t kv_block_bytes(const std::vector<KvGeometry>& layers);

class CpuKvStorage final : public KvStorage {
 public:
  explicit CpuKvStorage(const KvLayout& layout);

  const KvLayout& layout() const override { return layout_; }
  std::size_t block_bytes() const override;
  void copy_block(std::int32_t source, std::int32_t destination) override;
  void read_block(std::int32_t block, std::span<std::byte> out) const override;
  void write_block(std::int32_t block, std::span<const std::byte> in) override;

  KvHeadView head(std::int64_t layer, std::int64_t kv_head) const;
  const KvLayerShape& shape(std::int64_t layer) const { return layers_[static_cast<std::size_t>(layer)].shape; }

 private:
  std::byte* at(std::int64_t layer, std::int32_t block) const;

  KvLayout layout_;
  KvElement element_;
  std::vector<KvGeometry> layers_;
  AlignedMemory memory_;
};

}  // namespace quire
