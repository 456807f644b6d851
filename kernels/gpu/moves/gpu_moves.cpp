#include "kernels/gpu/moves/gpu_moves.h"

#include <algorithm>
#include <cstring>

#include "kernels/check.h"
#include "kernels/gpu/gpu_kv.h"
#include "kernels/gpu/gpu_recurrent.h"

namespace quire::gpu {
namespace {

constexpr std::size_t kMoveChunkBytes = std::size_t{4} << 20;

}  // namespace

GpuMoves::GpuMoves(Device& device) : device_(device), before_(device.create_event()) {
  for (Set& set : sets_) {
    set.began = device.create_timed_event();
    set.ended = device.create_timed_event();
  }
}

GpuMoves::~GpuMoves() {
  for (const Set& set : sets_) {
    for (const Chunk& chunk : set.chunks)
      device_.free_host(chunk.data);
  }
}

void GpuMoves::begin(std::size_t number) {
  current_ = number;
  Set& set = sets_[number];
  for (Chunk& chunk : set.chunks)
    chunk.used = 0;
  set.reads.clear();
  set.bytes_read = 0;
  set.bytes_written = 0;
  set.times = {};
}

std::byte* GpuMoves::take(Set& set, std::size_t bytes) {
  const auto fits = [&](const Chunk& chunk) { return chunk.used + bytes <= chunk.bytes; };
  auto found = std::ranges::find_if(set.chunks, fits);
  if (found == set.chunks.end()) {
    const std::size_t size = std::max(bytes, kMoveChunkBytes);
    set.chunks.push_back({.data = device_.allocate_host(size), .bytes = size});
    found = set.chunks.end() - 1;
  }
  std::byte* const place = found->data + found->used;
  found->used += (bytes + 15) / 16 * 16;
  return place;
}

// Allocates before the first copy.
void GpuMoves::take_places(Set& set, std::span<const BlockTransfer> transfers) {
  places_.clear();
  places_.reserve(transfers.size());
  set.reads.reserve(transfers.size());
  for (const BlockTransfer& transfer : transfers) {
    const std::size_t bytes = transfer.in.size() + transfer.out.size();
    const bool is_block = transfer.states == nullptr;
    const std::size_t whole = is_block ? transfer.storage->block_bytes() : transfer.states->state_bytes();
    QUIRE_CHECK(bytes == whole || (bytes == 0 && !is_block), "a KV block or a state of another size");
    places_.push_back(bytes == 0 ? nullptr : take(set, bytes));
  }
}

void GpuMoves::copy(Set& set, const BlockTransfer& transfer, std::byte* pinned) {
  if (pinned == nullptr)
    return static_cast<GpuStateStorage&>(*transfer.states).copy(transfer.source, transfer.number, Stream::kCopy);
  std::byte* const on_device = transfer.states != nullptr
                                   ? static_cast<const GpuStateStorage&>(*transfer.states).at(transfer.number)
                                   : static_cast<const GpuKvStorage&>(*transfer.storage).block(transfer.number);
  if (transfer.out.empty()) {
    std::memcpy(pinned, transfer.in.data(), transfer.in.size());
    device_.copy_to_device(on_device, pinned, transfer.in.size(), Stream::kCopy);
    set.bytes_written += transfer.in.size();
  } else {
    device_.copy_to_host(pinned, on_device, transfer.out.size(), Stream::kCopy);
    set.reads.push_back({pinned, transfer.out});
    set.bytes_read += transfer.out.size();
  }
}

void GpuMoves::enqueue(std::span<const BlockTransfer> transfers) {
  if (transfers.empty()) return;
  Set& set = sets_[current_];
  take_places(set, transfers);
  device_.record(before_, Stream::kCompute);
  device_.wait(Stream::kCopy, before_);
  device_.record(set.began, Stream::kCopy);
  for (std::size_t i = 0; i < transfers.size(); ++i)
    copy(set, transfers[i], places_[i]);
  device_.record(set.ended, Stream::kCopy);
  device_.wait(Stream::kCompute, set.ended);
}

// The time of each direction is not measured: bytes share it.
void GpuMoves::finish(std::size_t number) {
  Set& set = sets_[number];
  for (const Read& read : set.reads)
    std::memcpy(read.out.data(), read.from, read.out.size());
  set.reads.clear();
  const auto all = static_cast<double>(set.bytes_read + set.bytes_written);
  if (all == 0.0) return;
  const double seconds = device_.seconds_between(set.began, set.ended);
  set.times = {.read_s = seconds * static_cast<double>(set.bytes_read) / all,
               .write_s = seconds * static_cast<double>(set.bytes_written) / all};
}

}  // namespace quire::gpu
