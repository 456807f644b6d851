#include "kernels/gpu/moves/weight_uploads.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/device_step_bytes.h"

namespace quire::gpu {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{64} << 10;  // smallest piece worth a thread

// Groups [first, last) of a matrix, and where their bytes lie in it.
struct Part {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::size_t begin = 0;
  std::size_t bytes = 0;
};

std::int64_t groups_within(const PackedGroups& groups, std::size_t bytes) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / std::max<std::size_t>(1, groups.group_bytes)));
}

// The groups from `first` on that `most_bytes` hold, at least one.
Part part_from(const PackedGroups& groups, std::int64_t first, std::size_t most_bytes) {
  Part part{.first = first, .last = std::min(groups.count, first + groups_within(groups, most_bytes))};
  part.begin = static_cast<std::size_t>(first) * groups.group_bytes;
  part.bytes = std::min(groups.bytes, static_cast<std::size_t>(part.last) * groups.group_bytes) - part.begin;
  return part;
}

}  // namespace

WeightUploads::WeightUploads(Device& device, ThreadPool& pool, std::size_t part_bytes)
    : device_(device), pool_(pool), part_bytes_(part_bytes) {
  for (Buffer& buffer : buffers_)
    buffer.copied = device.create_event();
}

WeightUploads::~WeightUploads() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.memory != nullptr) device_.free_host(buffer.memory);
  }
}

void WeightUploads::wait(Buffer& buffer) {
  if (!std::exchange(buffer.is_in_flight, false)) return;
  device_.synchronize(buffer.copied);
}

void WeightUploads::reserve(Buffer& buffer, std::size_t bytes) {
  if (buffer.bytes >= bytes) return;
  if (buffer.memory != nullptr) device_.free_host(buffer.memory);
  buffer = {.copied = buffer.copied};
  buffer.memory = device_.allocate_host(std::max(bytes, part_bytes_));
  buffer.bytes = std::max(bytes, part_bytes_);
}

void WeightUploads::pack(const WeightSource& source, const PackedGroups& groups, std::int64_t first, std::int64_t last,
                         std::byte* out) {
  const std::int64_t each = groups_within(groups, kPieceBytes);
  pool_.run((last - first + each - 1) / each, [&](int, std::int64_t piece) {
    const std::int64_t begin = first + piece * each;
    pack_groups(source, groups, begin, std::min(last, begin + each),
                out + static_cast<std::size_t>(begin - first) * groups.group_bytes);
  });
}

void WeightUploads::upload(const WeightSource& source, const PackedGroups& groups, std::byte* to) {
  std::size_t next = 0;
  for (std::int64_t first = 0; first < groups.count;) {
    const Part part = part_from(groups, first, part_bytes_);
    Buffer& buffer = buffers_[next];
    wait(buffer);
    reserve(buffer, part.bytes);
    pack(source, groups, part.first, part.last, buffer.memory);
    device_.copy_to_device(to + part.begin, buffer.memory, part.bytes, Stream::kCopy);
    device_.record(buffer.copied, Stream::kCopy);
    buffer.is_in_flight = true;
    first = part.last;
    next = 1 - next;
  }
  for (Buffer& buffer : buffers_)
    wait(buffer);
}

void upload_beside(Device& device, const WeightSource& source, const PackedGroups& groups, std::byte* to) {
  const Part largest = part_from(groups, 0, kLoadingPartBytes);
  const auto packed = std::make_unique_for_overwrite<std::byte[]>(largest.bytes);
  for (std::int64_t first = 0; first < groups.count;) {
    const Part part = part_from(groups, first, kLoadingPartBytes);
    pack_groups(source, groups, part.first, part.last, packed.get());
    device.upload(to + part.begin, packed.get(), part.bytes);
    first = part.last;
  }
}

}  // namespace quire::gpu
