// WeightUploads: brings weights to a device while a model is loaded: the pool packs some groups of a matrix into one of
// two pinned buffers while the other one is copied on the copy stream. Engine thread, or the loading thread before it.
// Invariant: a buffer is written again only behind its copy. upload_beside: the same on the caller's thread alone,
// through memory of its own: any thread, while steps run.
#pragma once

#include <cstddef>

#include "kernels/backend.h"
#include "kernels/cpu/machine/thread_pool.h"
#include "kernels/gpu/device/device.h"
#include "kernels/gpu/pack/pack_weights.h"

namespace quire::gpu {

class WeightUploads {
 public:
  // part_bytes: size of a buffer, which grows if sixteen outputs need more.
  WeightUploads(Device& device, ThreadPool& pool, std::size_t part_bytes);
  ~WeightUploads();
  WeightUploads(const WeightUploads&) = delete;
  WeightUploads& operator=(const WeightUploads&) = delete;

  // Packs the source into groups.bytes at the device's memory `to`; returns when they are there. Throws DeviceError.
  void upload(const WeightSource& source, const PackedGroups& groups, std::byte* to);

 private:
  struct Buffer {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    Event copied = 0;
    bool is_in_flight = false;  // the copy has not ended
  };
  void wait(Buffer& buffer);
  void reserve(Buffer& buffer, std::size_t bytes);
  void pack(const WeightSource& source, const PackedGroups& groups, std::int64_t first, std::int64_t last,
            std::byte* out);

  Device& device_;
  ThreadPool& pool_;
  std::size_t part_bytes_;
  Buffer buffers_[2];
};

void upload_beside(Device& device, const WeightSource& source, const PackedGroups& groups, std::byte* to);

}  // namespace quire::gpu
