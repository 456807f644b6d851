#include "kernels/cuda/cuda_device.h"

#include "kernels/check.h"

namespace quire::gpu {
namespace {

constexpr int kSharedWithoutAsking = 48 << 10;
constexpr int kWaitsFrom = 90;  // CudaThread::wait_for_kernels

// arguments: of the launch, which it points to.
cudaKernelNodeParams node_params(const Launch& launch, void** arguments) {
  QUIRE_CHECK(launch.args.size() == launch.kernel->args_bytes, "arguments of another kernel");
  arguments[0] = const_cast<std::byte*>(launch.args.data());
  cudaKernelNodeParams params{};
  params.func = const_cast<void*>(static_cast<const CudaKernel*>(launch.kernel)->function);
  params.gridDim = dim3(static_cast<unsigned>(launch.grid.x), static_cast<unsigned>(launch.grid.y));
  params.blockDim = dim3(static_cast<unsigned>(launch.kernel->threads));
  params.sharedMemBytes = static_cast<unsigned>(launch.kernel->shared_bytes);
  params.kernelParams = arguments;
  return params;
}

std::string text_of(cudaError_t error) {
  return std::string(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) + ")";
}

// Makes GPU `number` the target of the calling thread's calls.
cudaError_t choose_device(int number) {
  thread_local int chosen = -1;
  if (chosen == number) return cudaSuccess;
  const cudaError_t error = cudaSetDevice(number);
  chosen = error == cudaSuccess ? number : -1;
  return error;
}

}  // namespace

GpuFacts read_facts(int number) {
  GpuFacts facts{.needed_version = CUDART_VERSION, .number = number};
  if (cudaDriverGetVersion(&facts.driver_version) != cudaSuccess) facts.driver_version = 0;
  cudaError_t error = cudaGetDeviceCount(&facts.num_gpus);
  if (error != cudaSuccess) {
    facts.num_gpus = 0;
    if (error != cudaErrorNoDevice) facts.error = text_of(error);
    return facts;
  }
  if (number >= facts.num_gpus) return facts;
  cudaDeviceProp properties{};
  error = cudaGetDeviceProperties(&properties, number);
  if (error == cudaSuccess) {
    facts.name = properties.name;
    facts.capability = 10 * properties.major + properties.minor;
    error = choose_device(number);
  }
  if (error != cudaSuccess) facts.error = text_of(error);
  cudaGetLastError();  // clears the error that was reported here
  return facts;
}

CudaDevice::CudaDevice(int number) : number_(number) {
  const GpuFacts facts = read_facts(number);
  if (const std::string reason = why_not(facts); !reason.empty()) throw DeviceError(reason);
  name_ = gpu_label(facts);
  add_row_kernels(kernels_);
  add_attention_kernels(kernels_);
  add_draw_kernels(kernels_);
  add_recurrent_kernels(kernels_);
  add_attention_tile_kernels(kernels_);
  add_linear_skinny_kernels(kernels_);
  add_linear_wide_kernels(kernels_);
  add_linear_half_kernels(kernels_);
  for (const CudaKernel& kernel : kernels_)
    by_name_.emplace(kernel.name, &kernel);
  for (cudaStream_t& each : streams_)
    note(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking), "making a stream");
  note(cudaStreamCreateWithFlags(&uploads_, cudaStreamNonBlocking), "making a stream");
  prepare_kernels();
  throw_error();
}

// Detects here, not in a step, a kernel that the GPU cannot run (a build without code for it), and whether all kernels
// wait for those before them, which those compiled for older GPUs do not.
void CudaDevice::prepare_kernels() {
  begins_early_ = true;
  for (const CudaKernel& kernel : kernels_) {
    cudaFuncAttributes attributes{};
    note(cudaFuncGetAttributes(&attributes, kernel.function), "loading the kernel " + kernel.name);
    begins_early_ &= attributes.ptxVersion >= kWaitsFrom;
    if (kernel.shared_bytes > kSharedWithoutAsking)
      note(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared_bytes),
           "loading the kernel " + kernel.name);
  }
}

CudaDevice::~CudaDevice() {
  enter();
  for (const auto& [number, made] : graphs_)
    destroy(made);
  for (const cudaEvent_t each : events_)
    cudaEventDestroy(each);
  for (const cudaStream_t each : streams_) {
    if (each != nullptr) cudaStreamDestroy(each);
  }
  if (uploads_ != nullptr) cudaStreamDestroy(uploads_);
}

void CudaDevice::enter() const {
  choose_device(number_);
}

// The first error is the cause of later ones.
void CudaDevice::note(cudaError_t error, std::string_view during) {
  if (error == cudaSuccess) return;
  const std::scoped_lock lock(error_mutex_);
  if (error_.empty()) error_ = name_ + " failed in " + std::string(during) + ": " + text_of(error);
  cudaGetLastError();
}

void CudaDevice::throw_error() const {
  const std::scoped_lock lock(error_mutex_);
  if (!error_.empty()) throw DeviceError(error_);
}

std::size_t CudaDevice::free_memory() const {
  enter();
  std::size_t free = 0;
  std::size_t total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
}

std::size_t CudaDevice::total_memory() const {
  enter();
  std::size_t free = 0;
  std::size_t total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? total : 0;
}

std::byte* CudaDevice::allocate(std::size_t bytes, std::string_view what) {
  enter();
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaSuccess) return static_cast<std::byte*>(memory);
  cudaGetLastError();
  throw DeviceError(name_ + " has no " + std::to_string(bytes) + " bytes for " + std::string(what) + ", " +
                    std::to_string(free_memory()) + " are free: " + text_of(error));
}

void CudaDevice::free(std::byte* memory) {
  enter();
  note(cudaFree(memory), "freeing memory");
}

void CudaDevice::upload(std::byte* to, const std::byte* from, std::size_t bytes) {
  enter();
  note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, uploads_), "an upload");
  note(cudaStreamSynchronize(uploads_), "an upload");
  throw_error();
}

std::byte* CudaDevice::allocate_host(std::size_t bytes) {
  enter();
  void* memory = nullptr;
  const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
  if (error == cudaSuccess) return static_cast<std::byte*>(memory);
  cudaGetLastError();
  throw DeviceError("the machine has no " + std::to_string(bytes) + " bytes of pinned memory for " + name_ + ": " +
                    text_of(error));
}

void CudaDevice::free_host(std::byte* memory) {
  enter();
  note(cudaFreeHost(memory), "freeing pinned memory");
}

void CudaDevice::copy_to_device(std::byte* to, const std::byte* from, std::size_t bytes, Stream which) {
  enter();
  note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream(which)), "a copy to the GPU");
}

void CudaDevice::copy_to_host(std::byte* to, const std::byte* from, std::size_t bytes, Stream which) {
  enter();
  note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream(which)), "a copy from the GPU");
}

void CudaDevice::fill(std::byte* to, std::byte value, std::size_t bytes, Stream which) {
  enter();
  note(cudaMemsetAsync(to, std::to_integer<int>(value), bytes, stream(which)), "filling memory");
}

const Kernel& CudaDevice::kernel(std::string_view name) const {
  const auto found = by_name_.find(name);
  QUIRE_CHECK(found != by_name_.end(), "no kernel of that name");
  return *found->second;
}

void CudaDevice::launch_bytes(const Kernel& kernel, Grid grid, const void* args, std::size_t args_bytes, Stream which) {
  QUIRE_CHECK(args_bytes == kernel.args_bytes, "arguments of another kernel");
  QUIRE_CHECK(grid.x >= 1 && grid.x < (std::int64_t{1} << 31) && grid.y >= 1 && grid.y < 65536, "grid out of range");
  enter();
  void* arguments[] = {const_cast<void*>(args)};
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(kernel.shared_bytes);
  config.stream = stream(which);
  config.attrs = &early;
  config.numAttrs = begins_early_ ? 1 : 0;
  const cudaError_t error = cudaLaunchKernelExC(&config, static_cast<const CudaKernel&>(kernel).function, arguments);
  if (error != cudaSuccess) note(error, "launching " + kernel.name);
}

// Appends a node to the graph's chain.
void CudaDevice::add_node(MadeGraph& made, const Launch& launch) {
  void* arguments[1];
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeKernel;
  const cudaKernelNodeParams kernel = node_params(launch, arguments);
  params.kernel.func = kernel.func;
  params.kernel.gridDim = kernel.gridDim;
  params.kernel.blockDim = kernel.blockDim;
  params.kernel.sharedMemBytes = kernel.sharedMemBytes;
  params.kernel.kernelParams = kernel.kernelParams;
  cudaGraphEdgeData edge{};
  if (begins_early_) {
    edge.from_port = cudaGraphKernelNodePortProgrammatic;
    edge.type = cudaGraphDependencyTypeProgrammatic;
  }
  const bool is_first = made.nodes.empty();
  cudaGraphNode_t node = nullptr;
  note(cudaGraphAddNode(&node, made.graph, is_first ? nullptr : &made.nodes.back(), is_first ? nullptr : &edge,
                        is_first ? 0 : 1, &params),
       "making a graph");
  made.nodes.push_back(node);
}

Graph CudaDevice::create_graph(std::span<const Launch> launches) {
  enter();
  MadeGraph& made = graphs_[++last_graph_];
  note(cudaGraphCreate(&made.graph, 0), "making a graph");
  for (const Launch& launch : launches)
    add_node(made, launch);
  note(cudaGraphInstantiate(&made.executable, made.graph, 0), "making a graph");
  return last_graph_;
}

void CudaDevice::update_graph(Graph graph, std::size_t index, const Launch& launch) {
  enter();
  const MadeGraph& made = graphs_.at(graph);
  void* arguments[1];
  const cudaKernelNodeParams params = node_params(launch, arguments);
  note(cudaGraphExecKernelNodeSetParams(made.executable, made.nodes.at(index), &params), "changing a graph");
}

void CudaDevice::launch_graph(Graph graph, Stream which) {
  enter();
  note(cudaGraphLaunch(graphs_.at(graph).executable, stream(which)), "launching a graph");
}

void CudaDevice::destroy_graph(Graph graph) {
  enter();
  const auto found = graphs_.find(graph);
  QUIRE_CHECK(found != graphs_.end(), "a graph that there is not");
  destroy(found->second);
  graphs_.erase(found);
}

void CudaDevice::destroy(const MadeGraph& made) {
  if (made.executable != nullptr) note(cudaGraphExecDestroy(made.executable), "giving up a graph");
  if (made.graph != nullptr) note(cudaGraphDestroy(made.graph), "giving up a graph");
}

Event CudaDevice::create_event(unsigned flags) {
  enter();
  cudaEvent_t made = nullptr;
  note(cudaEventCreateWithFlags(&made, flags), "making an event");
  const std::lock_guard lock(events_mutex_);
  events_.push_back(made);
  return static_cast<Event>(events_.size()) - 1;
}

Event CudaDevice::create_event() {
  return create_event(cudaEventDisableTiming);
}

Event CudaDevice::create_timed_event() {
  return create_event(cudaEventDefault);
}

double CudaDevice::seconds_between(Event first, Event second) {
  enter();
  float milliseconds = 0.0f;
  note(cudaEventElapsedTime(&milliseconds, event(first), event(second)), "reading the time of an event");
  return static_cast<double>(milliseconds) / 1000.0;
}

cudaEvent_t CudaDevice::event(Event which) const {
  const std::lock_guard lock(events_mutex_);
  return events_.at(static_cast<std::size_t>(which));
}

void CudaDevice::record(Event which, Stream on) {
  enter();
  note(cudaEventRecord(event(which), stream(on)), "recording an event");
}

void CudaDevice::wait(Stream on, Event which) {
  enter();
  note(cudaStreamWaitEvent(stream(on), event(which), 0), "waiting for an event");
}

bool CudaDevice::done(Event which) {
  enter();
  const cudaError_t error = cudaEventQuery(event(which));
  if (error == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  note(error, "what was enqueued");
  return true;
}

void CudaDevice::synchronize(Event which) {
  enter();
  note(cudaEventSynchronize(event(which)), "what was enqueued");
  throw_error();
}

void CudaDevice::synchronize() {
  enter();
  for (const cudaStream_t each : streams_)
    note(cudaStreamSynchronize(each), "what was enqueued");
  throw_error();
}

void CudaDevice::meet(const Device& peer) {
  const int other = static_cast<const CudaDevice&>(peer).number_;
  enter();
  int can_reach = 0;
  note(cudaDeviceCanAccessPeer(&can_reach, number_, other), "looking for a way to another GPU");
  if (can_reach == 0) return;
  const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return;
  }
  note(error, "opening a way to another GPU");
}

void CudaDevice::wait_for(Stream on, const Device& peer, Event which) {
  enter();
  note(cudaStreamWaitEvent(stream(on), static_cast<const CudaDevice&>(peer).event(which), 0), "waiting for a GPU");
}

void CudaDevice::copy_from(const Device& peer, std::byte* to, const std::byte* from, std::size_t bytes, Stream which) {
  const int other = static_cast<const CudaDevice&>(peer).number_;
  enter();
  note(cudaMemcpyPeerAsync(to, number_, from, other, bytes, stream(which)), "a copy from another GPU");
}

}  // namespace quire::gpu
