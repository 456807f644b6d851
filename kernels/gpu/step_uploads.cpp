#include "kernels/gpu/step_uploads.h"

#include <algorithm>

namespace quire::gpu {
namespace {

constexpr std::size_t kChunkBytes = 1 << 20;

}  // namespace

StepUploads::~StepUploads() {
  for (const Chunk& chunk : chunks_)
    device_.free_host(chunk.host);
}

void StepUploads::reset() {
  for (Chunk& chunk : chunks_)
    chunk.used = 0;
}

StepUploads::Place StepUploads::take(std::size_t bytes) {
  const std::size_t rounded = (bytes + 15) / 16 * 16;
  const auto fits = [&](const Chunk& chunk) { return chunk.used + rounded <= chunk.device.bytes(); };
  auto found = std::ranges::find_if(chunks_, fits);
  if (found == chunks_.end()) {
    const std::size_t size = std::max(rounded, kChunkBytes);
    DeviceMemory on_device(device_, size, "the arrays of a step");
    chunks_.push_back({device_.allocate_host(size), std::move(on_device), 0});
    found = chunks_.end() - 1;
  }
  const Place place{found->host + found->used, found->device.data() + found->used};
  found->used += rounded;
  return place;
}

}  // namespace quire::gpu
