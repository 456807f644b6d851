#include "tests/parallel/host_ranks.h"

#include <algorithm>

#include "kernels/registry.h"

namespace quire::test {
namespace {

struct HostTable {
  explicit HostTable(int num_ranks)
      : meeting(std::make_shared<Rendezvous>(num_ranks)),
        shares(static_cast<std::size_t>(num_ranks)),
        parts(shares.size()) {}

  std::shared_ptr<Rendezvous> meeting;
  std::vector<std::vector<float>> shares;
  std::vector<MatrixView> parts;
  bool agreed = false;
};

// Each rank waits for the others before it proceeds, so that one place for each is enough.
class HostRankSum final : public RankSum {
 public:
  HostRankSum(std::size_t rank, std::shared_ptr<HostTable> table) : rank_(rank), table_(std::move(table)) {}

  void reserve(std::int64_t rows, std::int64_t cols) override {
    table_->shares[rank_].resize(static_cast<std::size_t>(rows * cols));
  }
  MatrixView share(std::int64_t rows, std::int64_t cols) override {
    return {table_->shares[rank_].data(), rows, cols, cols};
  }
  void add_up(MatrixView share, MatrixView out, bool accumulate) override {
    table_->meeting->meet();
    for (std::int64_t row = 0; row < out.rows; ++row) {
      for (std::int64_t i = 0; i < out.cols; ++i) {
        const auto at = static_cast<std::size_t>(row * share.cols + i);
        float sum = table_->shares[0][at];
        for (std::size_t rank = 1; rank < table_->shares.size(); ++rank)
          sum += table_->shares[rank][at];
        float& to = out.data[row * out.stride + i];
        to = accumulate ? to + sum : sum;
      }
    }
    table_->meeting->meet();
  }
  void gather(MatrixView part, MatrixView all) override {
    table_->parts[rank_] = part;
    table_->meeting->meet();
    std::int64_t column = part.cols;
    for (std::size_t rank = 1; rank_ == 0 && rank < table_->parts.size(); ++rank) {
      const MatrixView from = table_->parts[rank];
      for (std::int64_t row = 0; row < from.rows; ++row)
        std::copy_n(from.data + row * from.stride, from.cols, all.data + row * all.stride + column);
      column += from.cols;
    }
    table_->meeting->meet();
  }
  bool agree(bool value) override {
    if (rank_ == 0) table_->agreed = value;
    table_->meeting->meet();
    const bool agreed = table_->agreed;
    table_->meeting->meet();
    return agreed;
  }
  void restart() override {}

 private:
  std::size_t rank_;
  std::shared_ptr<HostTable> table_;
};

}  // namespace

std::unique_ptr<Backend> host_backend() {
  return create_backend({.device = "cpu", .cpu = {.isa = "scalar", .threads = 1, .pin = false}});
}

std::unique_ptr<ParallelBackend> host_ranks(int num_ranks) {
  const auto table = std::make_shared<HostTable>(num_ranks);
  std::vector<ParallelBackend::Rank> ranks;
  for (int rank = 0; rank < num_ranks; ++rank)
    ranks.push_back({host_backend(), std::make_unique<HostRankSum>(static_cast<std::size_t>(rank), table)});
  return std::make_unique<ParallelBackend>(std::move(ranks), table->meeting);
}

}  // namespace quire::test
