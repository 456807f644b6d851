#include "kernels/gpu/ranks/gpu_ranks.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/check.h"

namespace quire::gpu {

GpuRankSum::GpuRankSum(Device& device, std::size_t rank, std::shared_ptr<RankTable> table)
    : device_(device),
      rank_(rank),
      table_(std::move(table)),
      kernel_(device.kernel("sum_ranks")),
      events_{device.create_event(), device.create_event()} {}

void GpuRankSum::reserve(std::int64_t rows, std::int64_t cols) {
  const std::size_t bytes = static_cast<std::size_t>(rows * cols) * sizeof(float);
  if (bytes <= reserved_) return;
  reserved_ = 0;
  for (DeviceMemory& place : shares_) {
    place = DeviceMemory();
    place = DeviceMemory(device_, bytes, "shares of products");
  }
  copies_ = DeviceMemory();
  copies_ = DeviceMemory(device_, bytes * (table_->devices.size() - 1), "the other GPUs' shares of products");
  reserved_ = bytes;
}

MatrixView GpuRankSum::share(std::int64_t rows, std::int64_t cols) {
  QUIRE_CHECK(static_cast<std::size_t>(rows * cols) * sizeof(float) <= reserved_,
              "a share of a product within what was reserved");
  return {shares_.at(num_sums_ % kSharePlaces).as<float>(), rows, cols, cols};
}

void GpuRankSum::add_up(MatrixView share, MatrixView out, bool accumulate) {
  QUIRE_CHECK(share.data == shares_.at(num_sums_ % kSharePlaces).as<float>() && out.rows == share.rows &&
                  out.cols == share.cols,
              "a sum of other than the share");
  const std::size_t index = show(share);
  const std::size_t bytes = static_cast<std::size_t>(share.rows * share.cols) * sizeof(float);
  SumRanksArgs args{.num_ranks = static_cast<int>(table_->devices.size()),
                    .cols = out.cols,
                    .out = out.data,
                    .out_stride = out.stride,
                    .accumulate = accumulate};
  std::byte* copy = copies_.data();
  for (std::size_t rank = 0; rank < table_->devices.size(); ++rank) {
    args.shares[rank] = share.data;
    if (rank == rank_) continue;
    const MatrixView from = wait_for(rank, index).share;
    device_.copy_from(*table_->devices[rank], copy, reinterpret_cast<const std::byte*>(from.data), bytes,
                      Stream::kCompute);
    args.shares[rank] = reinterpret_cast<const float*>(copy);
    copy += bytes;
  }
  if (out.rows > 0) device_.launch(kernel_, {.x = out.rows}, args);
}

void GpuRankSum::gather(MatrixView part, MatrixView all) {
  const std::size_t index = show(part);
  if (rank_ > 0) return;
  std::int64_t column = part.cols;
  for (std::size_t rank = 1; rank < table_->devices.size(); ++rank) {
    const MatrixView from = wait_for(rank, index).share;
    QUIRE_CHECK(from.rows == all.rows && column + from.cols <= all.cols, "columns of another product");
    for (std::int64_t row = 0; row < from.rows; ++row)
      device_.copy_from(*table_->devices[rank], reinterpret_cast<std::byte*>(all.data + row * all.stride + column),
                        reinterpret_cast<const std::byte*>(from.data + row * from.stride),
                        static_cast<std::size_t>(from.cols) * sizeof(float), Stream::kCompute);
    column += from.cols;
  }
}

std::size_t GpuRankSum::show(MatrixView share) {
  const std::size_t index = num_sums_++ % kSharePlaces;
  device_.record(events_.at(index), Stream::kCompute);
  table_->places.at(rank_).at(index) = {share, events_.at(index)};
  table_->meeting->meet();
  return index;
}

const RankTable::Place& GpuRankSum::wait_for(std::size_t rank, std::size_t index) {
  const RankTable::Place& place = table_->places.at(rank).at(index);
  device_.wait_for(Stream::kCompute, *table_->devices[rank], place.event);
  return place;
}

bool GpuRankSum::agree(bool value) {
  const std::size_t index = num_agreed_++ % kSharePlaces;
  if (rank_ == 0) table_->agreed.at(index) = value;
  table_->meeting->meet();
  return table_->agreed.at(index);
}

void GpuRankSum::restart() {
  num_sums_ = 0;
  num_agreed_ = 0;
}

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
