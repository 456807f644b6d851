// ParallelBackend: several backends, each with a device of its own (a rank), that compute one model together (tensor
// parallelism). It owns the objects that exist once for all of them: the KV storage of all ranks, waiting, the threads.
// The operations are the ranks' own: a model runs a graph on each. Engine thread only; only run() involves other
// threads. Invariant: a failure of one rank ends the pass on all of them and is thrown once.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/parallel/rank_sum.h"
#include "kernels/parallel/rank_threads.h"
#include "kernels/parallel/rendezvous.h"

namespace quire {

// K and V of heads [rank * n, (rank + 1) * n) of every layer lie on rank `rank`. Block numbers are the same on all.
class ParallelKvStorage final : public KvStorage {
 public:
  ParallelKvStorage(const KvLayout& layout, std::vector<std::unique_ptr<KvStorage>> ranks);

  const KvLayout& layout() const override { return layout_; }
  std::size_t block_bytes() const override { return block_bytes_; }
  void copy_block(std::int32_t source, std::int32_t destination) override;
  // The ranks' bytes, one behind the other.
  void read_block(std::int32_t block, std::span<std::byte> out) const override;
  void write_block(std::int32_t block, std::span<const std::byte> in) override;

  KvStorage& rank(int index) { return *ranks_[static_cast<std::size_t>(index)]; }

 private:
  KvLayout layout_;
  std::vector<std::unique_ptr<KvStorage>> ranks_;
  std::size_t block_bytes_ = 0;
};

// A rank's layout: the heads divided by the number of ranks.
KvLayout layout_of_rank(const KvLayout& layout, int num_ranks);

class ParallelBackend final : public Backend {
 public:
  struct Rank {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<RankSum> sum;  // null: the only rank
  };
  // meeting: where the ranks' sums meet.
  ParallelBackend(std::vector<Rank> ranks, std::shared_ptr<Rendezvous> meeting);
  ~ParallelBackend() override;

  Backend& rank(int index) const { return *ranks_[static_cast<std::size_t>(index)].backend; }
  RankSum* sum(int index) const { return ranks_[static_cast<std::size_t>(index)].sum.get(); }
  // Calls body(rank) on each rank's thread, 0 on the caller's. If some throw, rethrows the first one reported.
  void run(const std::function<void(int rank)>& body);

  std::string name() const override;
  ParallelBackend* parallel() override { return this; }
  int num_ranks() const override { return static_cast<int>(ranks_.size()); }
  bool has(Ability ability) const override { return rank(0).has(ability); }
  bool has_own_memory() const override { return rank(0).has_own_memory(); }
  std::unique_ptr<KvStorage> allocate_kv(const KvLayout& layout) override;
  std::size_t kv_block_bytes(const KvLayout& layout) const override;
  std::size_t packed_bytes(DType type, std::int64_t rows, std::int64_t cols) const override {
    return rank(0).packed_bytes(type, rows, cols);
  }
  void parallel_for(std::int64_t count, std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t)>& body) override {
    rank(0).parallel_for(count, grain, body);
  }
  // Results are rank 0's.
  MatrixView on_host(MatrixView x, HostResult result) override { return rank(0).on_host(x, result); }
  void synchronize() override;

  // Operations of a single rank, which abort here.
  std::unique_ptr<Linear> load_linear(std::span<const WeightSource>, std::span<const float>) override;
  std::unique_ptr<Linear> load_linear_beside(const WeightSource&) override;
  std::unique_ptr<Embedding> load_embedding(const WeightSource&) override;
  std::unique_ptr<Buffer> upload(std::span<const float>) override;
  std::unique_ptr<Buffer> allocate(std::int64_t) override;
  void embed(const Embedding&, std::span<const std::int32_t>, MatrixView) override;
  void rms_norm(MatrixView, const float*, float, MatrixView) override;
  void head_rms_norm(MatrixView, std::int64_t, std::int64_t, const float*, float) override;
  void linear(const Linear&, const ProductInput&, MatrixView, bool) override;
  void rope_angles(const RopePositions&, std::span<const double>, float, MatrixView, MatrixView) override;
  void rope(MatrixView, std::int64_t, std::int64_t, RopeStyle, MatrixView, MatrixView) override;
  void store_kv(KvStorage&, std::int64_t, const AttentionBatch&, MatrixView, MatrixView) override;
  void attention(const KvStorage&, std::int64_t, const AttentionBatch&, MatrixView, std::int64_t, float,
                 MatrixView) override;
  void gather_rows(MatrixView, std::span<const std::int32_t>, MatrixView) override;
  void put_rows(std::span<const float>, MatrixView) override;

 private:
  std::vector<Rank> ranks_;
  std::shared_ptr<Rendezvous> meeting_;
  RankThreads threads_;
  std::vector<std::exception_ptr> failures_;  // failures of the last run, indexed by rank
  bool has_failed_ = false;                   // the last run: its sums may be at different places
};

}  // namespace quire
