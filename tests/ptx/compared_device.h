// ComparedDevice: an emulated device that executes each kernel twice, in the emulator and by the PTX of nvcc, on the
// same arguments and the same memory, and compares all of the memory afterwards. The emulator's results stay.
// One thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/emulated/emulated_device.h"
#include "tests/ptx/kernel_programs.h"
#include "tests/ptx/machine/machine.h"

namespace quire::ptx {

class ComparedDevice final : public gpu::Device {
 public:
  // differences: lines of differing memory or of faults in the PTX, each with the kernel's name. Both outlive it.
  ComparedDevice(const KernelPrograms& programs, const RunOptions& options, std::vector<std::string>* differences);

  // Counts of a kernel's last launch.
  const LaunchCounts& counts(const std::string& kernel) const { return counts_.at(kernel); }
  // Bank conflicts of each kernel, over all its launches.
  const std::map<std::string, std::int64_t>& bank_conflicts() const { return bank_conflicts_; }
  // Names of all kernels.
  std::vector<std::string> kernel_names() const;

  std::string name() const override { return "emulated GPU and its PTX"; }
  std::size_t total_memory() const override { return emulated_.total_memory(); }
  std::size_t free_memory() const override { return emulated_.free_memory(); }
  std::byte* allocate(std::size_t bytes, std::string_view what) override;
  void free(std::byte* memory) override;
  void free_behind(std::byte* memory) override { free(memory); }  // each launch is done when it returns
  void upload(std::byte* to, const std::byte* from, std::size_t bytes) override { emulated_.upload(to, from, bytes); }
  std::byte* allocate_host(std::size_t bytes) override { return emulated_.allocate_host(bytes); }
  void free_host(std::byte* memory) override { emulated_.free_host(memory); }
  void copy_to_device(std::byte* to, const std::byte* from, std::size_t bytes, gpu::Stream stream) override;
  void copy_to_host(std::byte* to, const std::byte* from, std::size_t bytes, gpu::Stream stream) override;
  void fill(std::byte* to, std::byte value, std::size_t bytes, gpu::Stream stream) override;
  const gpu::Kernel& kernel(std::string_view name) const override { return emulated_.kernel(name); }
  void launch_bytes(const gpu::Kernel& kernel, gpu::Grid grid, const void* args, std::size_t args_bytes,
                    gpu::Stream stream) override;
  // Graphs are not compared: compared kernels are launched one by one.
  gpu::Graph create_graph(std::span<const gpu::Launch> launches) override { return emulated_.create_graph(launches); }
  void update_graph(gpu::Graph graph, std::size_t index, const gpu::Launch& launch) override {
    emulated_.update_graph(graph, index, launch);
  }
  void launch_graph(gpu::Graph graph, gpu::Stream stream) override { emulated_.launch_graph(graph, stream); }
  void destroy_graph(gpu::Graph graph) override { emulated_.destroy_graph(graph); }
  gpu::Event create_event() override { return emulated_.create_event(); }
  gpu::Event create_timed_event() override { return emulated_.create_timed_event(); }
  double seconds_between(gpu::Event first, gpu::Event second) override {
    return emulated_.seconds_between(first, second);
  }
  void record(gpu::Event event, gpu::Stream stream) override { emulated_.record(event, stream); }
  void wait(gpu::Stream stream, gpu::Event event) override { emulated_.wait(stream, event); }
  bool done(gpu::Event event) override { return emulated_.done(event); }
  void synchronize(gpu::Event event) override { emulated_.synchronize(event); }
  void synchronize() override { emulated_.synchronize(); }
  // A compared device has no peers.
  void meet(const gpu::Device& peer) override { emulated_.meet(peer); }
  void wait_for(gpu::Stream stream, const gpu::Device& peer, gpu::Event event) override {
    emulated_.wait_for(stream, peer, event);
  }
  void copy_from(const gpu::Device& peer, std::byte* to, const std::byte* from, std::size_t bytes,
                 gpu::Stream stream) override {
    emulated_.copy_from(peer, to, from, bytes, stream);
  }

 private:
  using Contents = std::vector<std::vector<std::byte>>;

  Contents contents() const;
  void restore(const Contents& contents);
  void run_ptx(const gpu::Kernel& kernel, gpu::Grid grid, std::span<const std::byte> args);
  void compare(const gpu::Kernel& kernel, const Contents& expected);

  const KernelPrograms& programs_;
  RunOptions options_;
  gpu::EmulatedDevice emulated_;
  std::map<std::byte*, std::size_t> memory_;
  std::vector<std::string>* differences_;
  std::map<std::string, LaunchCounts> counts_;
  std::map<std::string, std::int64_t> bank_conflicts_;
};

}  // namespace quire::ptx
