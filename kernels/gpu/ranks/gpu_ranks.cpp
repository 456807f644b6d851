#include "kernels/gpu/ranks/gpu_ranks.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/check.h"
#include "kernels/gpu/ranks/gpu_rank_sum.h"

namespace quire::gpu {

std::unique_ptr<ParallelBackend> make_gpu_ranks(std::vector<std::unique_ptr<Device>> devices,
                                                const GpuBackendOptions& options) {
  static_assert(kMostRanks == kMostShares);
  QUIRE_CHECK(!devices.empty() && devices.size() <= kMostRanks, "a model on so many devices");
  std::vector<std::unique_ptr<GatheringDevice>> gathering;
  std::vector<Device*> all;
  for (auto& device : devices) {
    gathering.push_back(std::make_unique<GatheringDevice>(std::move(device), options.graphs));
    all.push_back(gathering.back().get());
  }
  for (Device* device : all) {
    for (const Device* peer : all) {
      if (peer != device) device->meet(*peer);
    }
  }
  const auto table = std::make_shared<RankTable>(all);
  std::vector<ParallelBackend::Rank> ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    // Rank 0 is the host's: parallel_for is its. The others' threads load their weights.
    const int share = std::max(1, options.threads / static_cast<int>(all.size()));
    const GpuBackendOptions own{
        .name = options.name, .threads = rank == 0 ? options.threads : share, .graphs = options.graphs};
    ParallelBackend::Rank made{.backend = make_gpu_backend(std::move(gathering[rank]), own), .sum = nullptr};
    if (all.size() > 1) made.sum = std::make_unique<GpuRankSum>(*all[rank], rank, table);
    ranks.push_back(std::move(made));
  }
  return std::make_unique<ParallelBackend>(std::move(ranks), table->meeting);
}

}  // namespace quire::gpu
