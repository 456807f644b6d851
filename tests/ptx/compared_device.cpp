#include "tests/ptx/compared_device.h"

#include <algorithm>
#include <cstring>

namespace quire::ptx {

ComparedDevice::ComparedDevice(const KernelPrograms& programs, const RunOptions& options,
                               std::vector<std::string>* differences)
    : programs_(programs), options_(options), emulated_({.immediate = true}), differences_(differences) {}

std::vector<std::string> ComparedDevice::kernel_names() const {
  std::vector<std::string> out;
  for (const gpu::Kernel& kernel : emulated_.kernels())
    out.push_back(kernel.name);
  return out;
}

std::byte* ComparedDevice::allocate(std::size_t bytes, std::string_view what) {
  std::byte* const memory = emulated_.allocate(bytes, what);
  memory_[memory] = bytes;
  return memory;
}

void ComparedDevice::free(std::byte* memory) {
  memory_.erase(memory);
  emulated_.free(memory);
}

void ComparedDevice::copy_to_device(std::byte* to, const std::byte* from, std::size_t bytes, gpu::Stream stream) {
  emulated_.copy_to_device(to, from, bytes, stream);
}

void ComparedDevice::copy_to_host(std::byte* to, const std::byte* from, std::size_t bytes, gpu::Stream stream) {
  emulated_.copy_to_host(to, from, bytes, stream);
}

void ComparedDevice::fill(std::byte* to, std::byte value, std::size_t bytes, gpu::Stream stream) {
  emulated_.fill(to, value, bytes, stream);
}

ComparedDevice::Contents ComparedDevice::contents() const {
  Contents out;
  for (const auto& [data, bytes] : memory_)
    out.emplace_back(data, data + bytes);
  return out;
}

void ComparedDevice::restore(const Contents& contents) {
  std::size_t i = 0;
  for (const auto& [data, bytes] : memory_)
    std::ranges::copy(contents[i++], data);
}

void ComparedDevice::launch_bytes(const gpu::Kernel& kernel, gpu::Grid grid, const void* args, std::size_t args_bytes,
                                  gpu::Stream stream) {
  const Contents before = contents();
  emulated_.launch_bytes(kernel, grid, args, args_bytes, stream);
  const Contents expected = contents();
  restore(before);
  try {
    run_ptx(kernel, grid, {static_cast<const std::byte*>(args), args_bytes});
    compare(kernel, expected);
  } catch (const PtxError& error) {
    differences_->push_back(kernel.name + ": " + error.what());
  }
  restore(expected);
}

void ComparedDevice::run_ptx(const gpu::Kernel& kernel, gpu::Grid grid, std::span<const std::byte> args) {
  std::vector<MemoryRange> memory;
  for (const auto& [data, bytes] : memory_) {
    const auto begin = reinterpret_cast<std::uint64_t>(data);
    memory.push_back({begin, begin + bytes});
  }
  const Launch launch{.grid_x = grid.x,
                      .grid_y = grid.y,
                      .threads = kernel.threads,
                      .shared_bytes = kernel.shared_bytes,
                      .params = args};
  const LaunchCounts& counts = counts_[kernel.name] = execute(programs_.of(kernel.name), launch, memory, options_);
  bank_conflicts_[kernel.name] += counts.bank_conflicts();
}

void ComparedDevice::compare(const gpu::Kernel& kernel, const Contents& expected) {
  std::size_t i = 0;
  for (const auto& [data, bytes] : memory_) {
    const std::vector<std::byte>& wanted = expected[i++];
    const auto found = std::ranges::mismatch(std::span(data, bytes), wanted);
    if (found.in2 == wanted.end()) continue;
    differences_->push_back(kernel.name + ": other bits than the emulator's, first at byte " +
                            std::to_string(found.in2 - wanted.begin()) + " of " + std::to_string(bytes));
    return;
  }
}

}  // namespace quire::ptx
