// A backend for each of several devices that compute one model together. GpuRankSum, a RankSum over a Device: a rank
// records an event behind its share, meets the others' threads, lets its stream wait for their events, copies their
// shares and adds all of them. The host waits for threads, never for devices. The rank's own thread alone. Invariants:
// shares lie in two places alternately. Work that a rank enqueues behind a sum waits for every rank's share of that
// sum, which each rank makes after its copies of the sum before: so a place is written again when no copy reads it.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/gpu/device/device.h"
#include "kernels/gpu/device/device_memory.h"
#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/kernels/sum_ranks.h"
#include "kernels/parallel/parallel_backend.h"
#include "kernels/parallel/rank_sum.h"
#include "kernels/parallel/rendezvous.h"

namespace quire::gpu {

inline constexpr std::size_t kSharePlaces = 2;

// State that the ranks share. A rank writes its own row before they meet, and reads the others' behind it.
struct RankTable {
  struct Place {
    MatrixView share;  // on the rank's device
    Event event = 0;
  };
  explicit RankTable(const std::vector<Device*>& all)
      : devices(all.begin(), all.end()),
        meeting(std::make_shared<Rendezvous>(static_cast<int>(all.size()))),
        places(all.size()) {}

  std::vector<const Device*> devices;
  std::shared_ptr<Rendezvous> meeting;
  std::vector<std::array<Place, kSharePlaces>> places;
  std::array<bool, kSharePlaces> agreed{};  // written by rank 0
};

class GpuRankSum final : public RankSum {
 public:
  GpuRankSum(Device& device, std::size_t rank, std::shared_ptr<RankTable> table);

  void reserve(std::int64_t rows, std::int64_t cols) override;
  MatrixView share(std::int64_t rows, std::int64_t cols) override;
  void add_up(MatrixView share, MatrixView out, bool accumulate) override;
  void gather(MatrixView part, MatrixView all) override;
  bool agree(bool value) override;
  void restart() override;

 private:
  // Shows the other ranks what this one has enqueued, and waits until they have; the place that they all used.
  std::size_t show(MatrixView share);
  // The stream waits for the share of another rank.
  const RankTable::Place& wait_for(std::size_t rank, std::size_t index);

  Device& device_;
  const std::size_t rank_;
  const std::shared_ptr<RankTable> table_;
  const Kernel& kernel_;
  std::array<Event, kSharePlaces> events_;
  std::array<DeviceMemory, kSharePlaces> shares_;
  DeviceMemory copies_;       // copies of the other ranks' shares
  std::size_t reserved_ = 0;  // bytes of a share
  std::size_t num_sums_ = 0;
  std::size_t num_agreed_ = 0;
};

// Makes a backend of at most kMostRanks devices of one kind, all of which can be copied from. Engine thread only,
// except for the calls of ParallelBackend::run().
std::unique_ptr<ParallelBackend> make_gpu_ranks(std::vector<std::unique_ptr<Device>> devices,
                                                const GpuBackendOptions& options);

}  // namespace quire::gpu
