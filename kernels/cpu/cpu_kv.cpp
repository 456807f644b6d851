#include "kernels/cpu/cpu_kv.h"

#include <cstring>

#include "kernels/check.h"

namespace quire {
namespace {

std::size_t element_size(KvDType dtype) {
  switch (dtype) {
    case KvDType::kF32: return 4;
    case KvDType::kI8: return 1;
    default: return 2;
  }
}

KvElement element_of(KvDType dtype) {
  switch (dtype) {
    case KvDType::kF32: return KvElement::kF32;
    case KvDType::kF16: return KvElement::kF16;
    case KvDType::kBF16: return KvElement::kBF16;
    default: return KvElement::kI8;
  }
}

}  // namespace

KvGeometry::KvGeometry(const KvLayout& layout, std::int64_t layer) : shape(layout.shape(layer)) {
  QUIRE_CHECK(layout.block_size > 0 && layout.block_size % 16 == 0, "KV block size is not a multiple of 16");
  if (shape.num_heads == 0) return;
  QUIRE_CHECK(shape.key_dim > 0 && shape.key_dim % 8 == 0, "head size is not a multiple of 8");
  padded_dim = (shape.value_dim + 15) / 16 * 16;
  const std::size_t size = element_size(layout.dtype);
  const auto tokens = static_cast<std::size_t>(layout.block_size);
  const std::size_t scales = layout.dtype == KvDType::kI8 ? tokens * sizeof(float) : 0;
  key_bytes = static_cast<std::size_t>(shape.key_dim) * tokens * size + scales;
  if (shape.value_dim > 0) value_bytes = static_cast<std::size_t>(padded_dim) * tokens * size + scales;
  layer_bytes = static_cast<std::size_t>(shape.num_heads) * (key_bytes + value_bytes);
}

std::vector<KvGeometry> kv_geometry(const KvLayout& layout) {
  std::vector<KvGeometry> out;
  std::size_t before = 0;
  for (std::int64_t layer = 0; layer < layout.num_layers; ++layer) {
    out.emplace_back(layout, layer).before = before;
    before += out.back().layer_bytes;
  }
  return out;
}

std::size_t kv_block_bytes(const std::vector<KvGeometry>& layers) {
  return layers.empty() ? 0 : layers.back().before + layers.back().layer_bytes;
}

CpuKvStorage::CpuKvStorage(const KvLayout& layout)
    : layout_(layout),
      element_(element_of(layout.dtype)),
      layers_(kv_geometry(layout)),
      memory_(kv_block_bytes(layers_) * static_cast<std::size_t>(layout.num_blocks)) {}

std::size_t CpuKvStorage::block_bytes() const {
  return kv_block_bytes(layers_);
}

std::byte* CpuKvStorage::at(std::int64_t layer, std::int32_t block) const {
  QUIRE_CHECK(block >= 0 && block < layout_.num_blocks, "KV block out of range");
  const KvGeometry& geometry = layers_[static_cast<std::size_t>(layer)];
  return memory_.data() + geometry.before * static_cast<std::size_t>(layout_.num_blocks) +
         static_cast<std::size_t>(block) * geometry.layer_bytes;
}

void CpuKvStorage::copy_block(std::int32_t source, std::int32_t destination) {
  if (source == destination) return;
  for (std::int64_t layer = 0; layer < layout_.num_layers; ++layer)
    std::memcpy(at(layer, destination), at(layer, source), layers_[static_cast<std::size_t>(layer)].layer_bytes);
}

void CpuKvStorage::read_block(std::int32_t block, std::span<std::byte> out) const {
  QUIRE_CHECK(out.size() == block_bytes(), "KV block of another size");
  for (std::int64_t layer = 0; layer < layout_.num_layers; ++layer) {
    const KvGeometry& geometry = layers_[static_cast<std::size_t>(layer)];
    std::memcpy(out.data() + geometry.before, at(layer, block), geometry.layer_bytes);
  }
}

void CpuKvStorage::write_block(std::int32_t block, std::span<const std::byte> in) {
  QUIRE_CHECK(in.size() == block_bytes(), "KV block of another size");
  for (std::int64_t layer = 0; layer < layout_.num_layers; ++layer) {
    const KvGeometry& geometry = layers_[static_cast<std::size_t>(layer)];
    std::memcpy(at(layer, block), in.data() + geometry.before, geometry.layer_bytes);
  }
}

KvHeadView CpuKvStorage::head(std::int64_t layer, std::int64_t kv_head) const {
  const KvGeometry& geometry = layers_[static_cast<std::size_t>(layer)];
  const auto index = static_cast<std::size_t>(kv_head);
  const auto heads = static_cast<std::size_t>(geometry.shape.num_heads);
  KvHeadView view;
  view.base = at(layer, 0) + index * geometry.key_bytes;
  view.block_stride = geometry.layer_bytes;
  view.value_offset = (heads - index) * geometry.key_bytes + index * geometry.value_bytes;
  view.block_size = layout_.block_size;
  view.head_dim = geometry.shape.key_dim;
  view.padded_dim = geometry.padded_dim;
  view.element = element_;
  return view;
}

}  // namespace quire
