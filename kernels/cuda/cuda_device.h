// CudaDevice: a Device over the CUDA runtime, which is linked statically. Threads as Device says, and peers' threads
// that look events up; each thread that comes chooses the GPU for itself. Invariant: the first error that the runtime
// reports stays, and is thrown by every synchronize() from then on.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernel.h"
#include "kernels/gpu/gpu_facts.h"

namespace quire::gpu {

// The facts of GPU `number`; needs no driver.
GpuFacts read_facts(int number);

class CudaDevice final : public Device {
 public:
  // Throws DeviceError if the GPU cannot be used.
  explicit CudaDevice(int number);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override;

  std::string name() const override { return name_; }
  std::size_t total_memory() const override;
  std::size_t free_memory() const override;
  std::byte* allocate(std::size_t bytes, std::string_view what) override;
  void free(std::byte* memory) override;
  void free_behind(std::byte* memory) override { free(memory); }  // the runtime's free waits for enqueued work
  void upload(std::byte* to, const std::byte* from, std::size_t bytes) override;
  std::byte* allocate_host(std::size_t bytes) override;
  void free_host(std::byte* memory) override;
  void copy_to_device(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) override;
  void copy_to_host(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) override;
  void fill(std::byte* to, std::byte value, std::size_t bytes, Stream stream) override;
  const Kernel& kernel(std::string_view name) const override;
  void launch_bytes(const Kernel& kernel, Grid grid, const void* args, std::size_t args_bytes, Stream stream) override;
  Graph create_graph(std::span<const Launch> launches) override;
  void update_graph(Graph graph, std::size_t index, const Launch& launch) override;
  void launch_graph(Graph graph, Stream stream) override;
  void destroy_graph(Graph graph) override;
  Event create_event() override;
  Event create_timed_event() override;
  double seconds_between(Event first, Event second) override;
  void record(Event event, Stream stream) override;
  void wait(Stream stream, Event event) override;
  bool done(Event event) override;
  void synchronize(Event event) override;
  void synchronize() override;
  void meet(const Device& peer) override;
  void wait_for(Stream stream, const Device& peer, Event event) override;
  // Copies through the host's memory, by the driver, if the two cannot reach each other.
  void copy_from(const Device& peer, std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) override;

 private:
  // Nodes belong to the graph that the executable one was made of.
  struct MadeGraph {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    std::vector<cudaGraphNode_t> nodes;
  };

  void enter() const;
  void destroy(const MadeGraph& made);
  Event create_event(unsigned flags);
  void prepare_kernels();
  void add_node(MadeGraph& made, const Launch& launch);
  void note(cudaError_t error, std::string_view during);
  void throw_error() const;
  cudaStream_t stream(Stream which) const { return streams_.at(static_cast<std::size_t>(which)); }
  cudaEvent_t event(Event which) const;

  int number_;
  std::string name_;
  bool begins_early_ = false;  // a kernel may begin before the one before it ends, and waits for it itself
  std::vector<CudaKernel> kernels_;
  std::map<std::string, const CudaKernel*, std::less<>> by_name_;
  std::array<cudaStream_t, kNumStreams> streams_{};
  cudaStream_t uploads_ = nullptr;
  mutable std::mutex events_mutex_;  // peers' threads look events up
  std::vector<cudaEvent_t> events_;
  std::map<Graph, MadeGraph> graphs_;
  Graph last_graph_ = 0;
  mutable std::mutex error_mutex_;
  std::string error_;  // under error_mutex_
};

}  // namespace quire::gpu
