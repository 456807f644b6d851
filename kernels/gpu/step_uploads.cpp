#include "kernels/gpu/step_uploads.h"

#include <algorithm>
#include <cstring>

namespace quire::gpu {
namespace {

constexpr std::size_t kChunkBytes = 1 << 20;

}  // namespace

StepUploads::~StepUploads() {
  for (const Set& set : sets_) {
    for (const Chunk& chunk : set.chunks)
      device_.free_host(chunk.host);
  }
}

void StepUploads::begin(std::size_t set) {
  current_ = set;
  for (Chunk& chunk : sets_[set].chunks)
    chunk.used = 0;
  sets_[set].sent.clear();
}

const std::byte* StepUploads::put_bytes(std::span<const std::byte> values) {
  std::vector<Sent>& all = sets_[current_].sent;
  const auto found = std::ranges::find_if(all, [&](const Sent& sent) {
    return sent.bytes == values.size() && std::memcmp(sent.place.host, values.data(), values.size()) == 0;
  });
  if (found != all.end() && !values.empty()) return found->place.device;
  const Place place = take(values.size());
  if (values.empty()) return place.device;
  std::memcpy(place.host, values.data(), values.size());
  device_.copy_to_device(place.device, place.host, values.size(), Stream::kCompute);
  if (all.size() == kRemembered) all.erase(all.begin());
  all.push_back({place, values.size()});
  return place.device;
}

void StepUploads::send(std::span<const std::byte> values, std::byte* to) {
  if (values.empty()) return;
  const Place place = take(values.size());
  std::memcpy(place.host, values.data(), values.size());
  device_.copy_to_device(to, place.host, values.size(), Stream::kCompute);
}

StepUploads::Place StepUploads::take(std::size_t bytes) {
  std::vector<Chunk>& chunks = sets_[current_].chunks;
  const std::size_t rounded = (bytes + 15) / 16 * 16;
  const auto fits = [&](const Chunk& chunk) { return chunk.used + rounded <= chunk.device.bytes(); };
  auto found = std::ranges::find_if(chunks, fits);
  if (found == chunks.end()) {
    const std::size_t size = std::max(rounded, kChunkBytes);
    DeviceMemory on_device(device_, size, "the arrays of a step");
    chunks.push_back({device_.allocate_host(size), std::move(on_device), 0});
    found = chunks.end() - 1;
  }
  const Place place{found->host + found->used, found->device.data() + found->used};
  found->used += rounded;
  return place;
}

}  // namespace quire::gpu
