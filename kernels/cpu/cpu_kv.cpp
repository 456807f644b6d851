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

KvGeometry::KvGeometry(const KvLayout& layout) : element(element_of(layout.dtype)) {
  QUIRE_CHECK(layout.block_size > 0 && layout.block_size % 16 == 0, "KV block size is not a multiple of 16");
  QUIRE_CHECK(layout.head_dim > 0 && layout.head_dim % 8 == 0, "head size is not a multiple of 8");
  padded_dim = ((layout.value_dim >= 0 ? layout.value_dim : layout.head_dim) + 15) / 16 * 16;
  const std::size_t size = element_size(layout.dtype);
  const auto tokens = static_cast<std::size_t>(layout.block_size);
  const std::size_t scales = layout.dtype == KvDType::kI8 ? tokens * sizeof(float) : 0;
  key_bytes = static_cast<std::size_t>(layout.head_dim) * tokens * size + scales;
  value_bytes = layout.value_dim == 0 ? 0 : static_cast<std::size_t>(padded_dim) * tokens * size + scales;
  layer_bytes = static_cast<std::size_t>(layout.num_kv_heads) * (key_bytes + value_bytes);
}

CpuKvStorage::CpuKvStorage(const KvLayout& layout)
    : layout_(layout),
      geometry_(layout),
      memory_(geometry_.layer_bytes * static_cast<std::size_t>(layout.num_blocks * layout.num_layers)) {}

std::size_t CpuKvStorage::block_bytes() const {
  return geometry_.layer_bytes * static_cast<std::size_t>(layout_.num_layers);
}

std::byte* CpuKvStorage::at(std::int64_t layer, std::int32_t block) const {
  QUIRE_CHECK(block >= 0 && block < layout_.num_blocks, "KV block out of range");
  return memory_.data() + static_cast<std::size_t>(layer * layout_.num_blocks + block) * geometry_.layer_bytes;
}

void CpuKvStorage::copy_block(std::int32_t source, std::int32_t destination) {
  if (source == destination) return;
  for (std::int64_t layer = 0; layer < layout_.num_layers; ++layer) {
    std::memcpy(at(layer, destination), at(layer, source), geometry_.layer_bytes);
  }
}

void CpuKvStorage::read_block(std::int32_t block, std::span<std::byte> out) const {
  QUIRE_CHECK(out.size() == block_bytes(), "KV block of another size");
  for (std::int64_t layer = 0; layer < layout_.num_layers; ++layer) {
    std::memcpy(out.data() + static_cast<std::size_t>(layer) * geometry_.layer_bytes, at(layer, block),
                geometry_.layer_bytes);
  }
}

void CpuKvStorage::write_block(std::int32_t block, std::span<const std::byte> in) {
  QUIRE_CHECK(in.size() == block_bytes(), "KV block of another size");
  for (std::int64_t layer = 0; layer < layout_.num_layers; ++layer) {
    std::memcpy(at(layer, block), in.data() + static_cast<std::size_t>(layer) * geometry_.layer_bytes,
                geometry_.layer_bytes);
  }
}

KvHeadView CpuKvStorage::head(std::int64_t layer, std::int64_t kv_head) const {
  const auto index = static_cast<std::size_t>(kv_head);
  const auto heads = static_cast<std::size_t>(layout_.num_kv_heads);
  KvHeadView view;
  view.base = at(layer, 0) + index * geometry_.key_bytes;
  view.block_stride = geometry_.layer_bytes;
  view.value_offset = (heads - index) * geometry_.key_bytes + index * geometry_.value_bytes;
  view.block_size = layout_.block_size;
  view.head_dim = layout_.head_dim;
  view.padded_dim = geometry_.padded_dim;
  view.element = geometry_.element;
  return view;
}

}  // namespace quire
