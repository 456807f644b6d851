#include "kernels/cpu/cpu_kv.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {
namespace {

static_assert(kMostValueGroups == kMostInt4HeadDim / kValueGroup);

// Bytes of K or V of one head in a block, scales included. group: for int4.
std::size_t head_bytes(KvDType dtype, std::int64_t dim, std::int64_t block_size, std::int64_t group) {
  const auto elements = static_cast<std::size_t>(dim * block_size);
  const auto tokens = static_cast<std::size_t>(block_size);
  switch (dtype) {
    case KvDType::kF32: return 4 * elements;
    case KvDType::kI8: return elements + tokens * sizeof(float);
    case KvDType::kI4: return elements / 2 + static_cast<std::size_t>(groups_of(dim, group)) * tokens * 4;
    default: return 2 * elements;
  }
}

KvElement element_of(KvDType dtype) {
  switch (dtype) {
    case KvDType::kF32: return KvElement::kF32;
    case KvDType::kF16: return KvElement::kF16;
    case KvDType::kBF16: return KvElement::kBF16;
    case KvDType::kI4: return KvElement::kI4;
    default: return KvElement::kI8;
  }
}

}  // namespace

std::int64_t padded_value_dim(KvDType dtype, std::int64_t value_dim) {
  const std::int64_t unit = dtype == KvDType::kI4 ? kValueGroup : 16;
  return (value_dim + unit - 1) / unit * unit;
}

KvGeometry::KvGeometry(const KvLayout& layout, std::int64_t layer) : shape(layout.shape(layer)) {
  QUIRE_CHECK(layout.block_size > 0 && layout.block_size % 16 == 0, "KV block size is not a multiple of 16");
  if (shape.num_heads == 0) return;
  QUIRE_CHECK(shape.key_dim > 0 && shape.key_dim % 8 == 0, "head size is not a multiple of 8");
  QUIRE_CHECK(layout.dtype != KvDType::kI4 ||
                  (shape.value_dim > 0 && std::max(shape.key_dim, shape.value_dim) <= kMostInt4HeadDim),
              "an int4 cache of heads that it does not take");
  padded_dim = padded_value_dim(layout.dtype, shape.value_dim);
  key_bytes = head_bytes(layout.dtype, shape.key_dim, layout.block_size, kKeyGroup);
  if (shape.value_dim > 0) value_bytes = head_bytes(layout.dtype, padded_dim, layout.block_size, kValueGroup);
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
    std::copy_n(at(layer, source), layers_[static_cast<std::size_t>(layer)].layer_bytes, at(layer, destination));
}

void CpuKvStorage::read_block(std::int32_t block, std::span<std::byte> out) const {
  QUIRE_CHECK(out.size() == block_bytes(), "KV block of another size");
  for (std::int64_t layer = 0; layer < layout_.num_layers; ++layer) {
    const KvGeometry& geometry = layers_[static_cast<std::size_t>(layer)];
    std::copy_n(at(layer, block), geometry.layer_bytes, out.data() + geometry.before);
  }
}

void CpuKvStorage::write_block(std::int32_t block, std::span<const std::byte> in) {
  QUIRE_CHECK(in.size() == block_bytes(), "KV block of another size");
  for (std::int64_t layer = 0; layer < layout_.num_layers; ++layer) {
    const KvGeometry& geometry = layers_[static_cast<std::size_t>(layer)];
    std::copy_n(in.data() + geometry.before, geometry.layer_bytes, at(layer, block));
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
