// GatheringDevice: a Device that gathers launches on the compute stream, with the arrays that they read, and enqueues
// them together: one copy for adjacent arrays, then the launches, as a graph if the same kernels are expected again.
// Any other use of that stream, and any wait, first enqueues the gathered work. Engine thread only, except for calls
// that the other device allows other threads. Invariant: the stream does the same operations in the same order, except
// that arrays precede the launches gathered with them.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "kernels/gpu/device/device.h"

namespace quire::gpu {

class GatheringDevice final : public Device {
 public:
  struct Counts {
    std::int64_t num_copies = 0;  // copied arrays
    std::int64_t num_plain_launches = 0;
    std::int64_t num_graphs = 0;  // graphs that were made
    std::int64_t num_graph_launches = 0;
    std::int64_t num_updates = 0;  // updates of one kernel of a graph
  };

  // gathers: false: all is enqueued as it comes, one by one.
  GatheringDevice(std::unique_ptr<Device> device, bool gathers);
  GatheringDevice(const GatheringDevice&) = delete;
  GatheringDevice& operator=(const GatheringDevice&) = delete;
  ~GatheringDevice() override { flush(); }

  // Sends an array for later launches, to memory that no gathered launch uses.
  void send_array(std::byte* to, const std::byte* from, std::size_t bytes);
  // Says that launches up to the next flush() are likely to repeat, with other arguments at most.
  void expect_repetition() { is_repetition_ = true; }
  // Enqueues the gathered work.
  void flush();
  const Counts& counts() const { return counts_; }

  std::string name() const override { return device_->name(); }
  std::size_t total_memory() const override { return device_->total_memory(); }
  std::size_t free_memory() const override { return device_->free_memory(); }
  std::byte* allocate(std::size_t bytes, std::string_view what) override { return device_->allocate(bytes, what); }
  void free(std::byte* memory) override { device_->free(memory); }
  void free_behind(std::byte* memory) override;
  void upload(std::byte* to, const std::byte* from, std::size_t bytes) override { device_->upload(to, from, bytes); }
  std::byte* allocate_host(std::size_t bytes) override { return device_->allocate_host(bytes); }
  void free_host(std::byte* memory) override { device_->free_host(memory); }
  void copy_to_device(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) override;
  void copy_to_host(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) override;
  void fill(std::byte* to, std::byte value, std::size_t bytes, Stream stream) override;
  const Kernel& kernel(std::string_view name) const override { return device_->kernel(name); }
  void launch_bytes(const Kernel& kernel, Grid grid, const void* args, std::size_t args_bytes, Stream stream) override;
  Graph create_graph(std::span<const Launch> launches) override { return device_->create_graph(launches); }
  void update_graph(Graph graph, std::size_t index, const Launch& launch) override;
  void launch_graph(Graph graph, Stream stream) override;
  void destroy_graph(Graph graph) override { device_->destroy_graph(graph); }
  Event create_event() override { return device_->create_event(); }
  Event create_timed_event() override { return device_->create_timed_event(); }
  double seconds_between(Event first, Event second) override { return device_->seconds_between(first, second); }
  void record(Event event, Stream stream) override;
  void wait(Stream stream, Event event) override;
  bool done(Event event) override { return device_->done(event); }
  void synchronize(Event event) override;
  void synchronize() override;
  void meet(const Device& peer) override { device_->meet(other_of(peer)); }
  void wait_for(Stream stream, const Device& peer, Event event) override;
  void copy_from(const Device& peer, std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) override;

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  // Launches, and the bytes of their arguments one behind the other.
  struct Gathered {
    struct Item {
      const Kernel* kernel;
      Grid grid;
      std::size_t args;  // offset of the arguments
    };
    std::vector<Item> items;
    std::vector<std::byte> args;

    Launch launch(std::size_t index) const;
    bool has_kernels_of(const Gathered& other) const;
    bool is_same(std::size_t index, const Gathered& other) const;
    void clear();
  };
  struct Known {
    Gathered launches;
    Graph graph;
    std::int64_t last_use;
  };

  static const Device& other_of(const Device& peer) { return *static_cast<const GatheringDevice&>(peer).device_; }
  void launch_plainly();
  void free_given_up();
  void flush_for(Stream stream);
  void launch_as_graph();
  Known* closest(std::size_t& num_different);
  Known& make_graph();
  void update(Known& known);

  const std::unique_ptr<Device> device_;
  const bool gathers_;
  bool is_repetition_ = false;
  std::vector<Copy> copies_;
  Gathered gathered_;
  std::vector<Known> known_;
  std::int64_t num_uses_ = 0;  // uses of graphs
  std::mutex mutex_;
  bool has_launches_ = false;         // under mutex_
  std::vector<std::byte*> given_up_;  // under mutex_: memory that gathered work may use
  Counts counts_;
};

}  // namespace quire::gpu
