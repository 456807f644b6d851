#include "kernels/gpu/gpu_kv.h"

#include "kernels/check.h"
#include "kernels/gpu/kernels/row_ops.h"

namespace quire::gpu {
namespace {

KvType kv_type(KvDType dtype) {
  switch (dtype) {
    case KvDType::kF32: return KvType::kF32;
    case KvDType::kF16: return KvType::kF16;
    case KvDType::kBF16: return KvType::kBF16;
    default: return KvType::kI8;
  }
}

}  // namespace

KvBlockShape::KvBlockShape(const KvLayout& layout) {
  QUIRE_CHECK(layout.block_size > 0 && layout.block_size % 16 == 0, "KV block size is not a multiple of 16");
  const std::int64_t element = kv_element_bytes(kv_type(layout.dtype));
  const std::int64_t scales = layout.dtype == KvDType::kI8 ? layout.block_size * 4 : 0;
  for (std::int64_t i = 0; i < layout.num_layers; ++i) {
    const KvLayerShape shape = layout.shape(i);
    KvLayerView layer{.block_size = layout.block_size, .key_dim = shape.key_dim, .value_dim = shape.value_dim};
    if (shape.num_heads > 0) layer.key_bytes = shape.key_dim * layout.block_size * element + scales;
    if (shape.value_dim > 0) layer.value_bytes = shape.value_dim * layout.block_size * element + scales;
    layer.value_offset = shape.num_heads * layer.key_bytes;
    layer.base_offset = static_cast<std::int64_t>(bytes);
    bytes += static_cast<std::size_t>(layer.value_offset + shape.num_heads * layer.value_bytes);
    layers.push_back(layer);
    num_heads.push_back(shape.num_heads);
  }
  for (KvLayerView& layer : layers)
    layer.block_stride = static_cast<std::int64_t>(bytes);
}

GpuKvStorage::GpuKvStorage(Device& device, const KvLayout& layout)
    : device_(device),
      layout_(layout),
      shape_(layout),
      memory_(device, shape_.bytes * static_cast<std::size_t>(layout.num_blocks), "the KV cache") {
  device.fill(memory_.data(), std::byte{0}, memory_.bytes(), Stream::kCompute);
}

KvLayerView GpuKvStorage::layer(std::int64_t layer) const {
  KvLayerView view = shape_.layers[static_cast<std::size_t>(layer)];
  view.base = memory_.data() + view.base_offset;
  return view;
}

std::byte* GpuKvStorage::block(std::int32_t number) const {
  QUIRE_CHECK(number >= 0 && number < layout_.num_blocks, "KV block out of range");
  return memory_.data() + static_cast<std::size_t>(number) * shape_.bytes;
}

void GpuKvStorage::copy_block(std::int32_t source, std::int32_t destination) {
  const CopyBytesArgs args{
      .from = block(source), .to = block(destination), .bytes = static_cast<std::int64_t>(shape_.bytes)};
  constexpr std::int64_t kEach = CopyBytes::kThreads * 16;
  device_.launch(device_.kernel("copy_bytes"), {.x = groups_of(args.bytes, kEach)}, args);
}

void GpuKvStorage::read_block(std::int32_t block, std::span<std::byte> out) const {
  QUIRE_CHECK(out.size() == shape_.bytes, "a KV block of another size");
  device_.copy_to_host(out.data(), this->block(block), out.size(), Stream::kCompute);
  device_.synchronize();
}

void GpuKvStorage::write_block(std::int32_t block, std::span<const std::byte> in) {
  QUIRE_CHECK(in.size() == shape_.bytes, "a KV block of another size");
  device_.copy_to_device(this->block(block), in.data(), in.size(), Stream::kCompute);
  device_.synchronize();
}

}  // namespace quire::gpu
