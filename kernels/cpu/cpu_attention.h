// AttentionRunner: shares paged attention out over the compute threads. One thread at a time.
// Invariant: the context is cut at multiples of kPartition and partitions are merged in order, whoever computes them;
// which of the two ways of sharing is taken changes no bit of the result.
#pragma once

#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_kv.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/thread_pool.h"

namespace quire {

class AttentionRunner {
 public:
  AttentionRunner(const KernelTable& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  void run(const CpuKvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
           std::int64_t num_heads, float scale, MatrixView out);

 private:
  // Some consecutive rows of one sequence; times each K/V head it is a unit of work.
  struct Item {
    std::int64_t first_row = 0;
    std::int64_t num_rows = 0;
    std::int64_t first_visible = 0;  // tokens that its first row sees
    std::int64_t more_visible = 1;   // that each row sees beyond the row before it
    const std::int32_t* block_table = nullptr;
    std::int64_t partitions = 0;
    std::int64_t tiles = 0;        // of query vectors, for each K/V head
    std::int64_t first_state = 0;  // in split sharing: its states, one per (head, partition, query tile)
  };
  // K/V heads [first_head, first_head + num_heads) of an item; in split sharing of one partition only. Several heads
  // where the item has a single tile: then what they read of a block lies together.
  struct Unit {
    std::int64_t item = 0;
    std::int64_t first_head = 0;
    std::int64_t num_heads = 0;
    std::int64_t partition = 0;
  };
  // What one thread works in: the kernel's scratch, packed queries of each head or tile, and states: kTilesTogether of
  // a partition, and the running ones of its heads or tiles.
  struct Worker {
    Scratch memory;
    float* scratch = nullptr;
    float* queries = nullptr;
    float* states = nullptr;
    std::vector<QueryTile> tiles;
  };
  // The arguments of one run.
  struct Call {
    const CpuKvStorage* kv;
    std::int64_t layer;
    MatrixView q;
    MatrixView out;
    std::int64_t num_heads;
    std::int64_t num_kv_heads;
    std::int64_t group;
    std::int64_t head_dim;
    std::int64_t padded_dim;
    float scale;
  };

  void plan(const AttentionBatch& batch, std::int64_t max_rows, std::int64_t group, std::int64_t num_kv_heads);
  void plan_units(std::int64_t num_kv_heads, bool split);
  void run_whole(const Call& call);
  void run_split(const Call& call);
  template <class StateOf>
  void run_partition(const Call& call, const Unit& unit, Worker& worker, const StateOf& state_of);
  void run_tiles(const Call& call, const Unit& unit, Worker& worker);
  void run_heads(const Call& call, const Unit& unit, Worker& worker);
  void make_head_tiles(const Call& call, const Unit& unit, Worker& worker, KvHeadView* views) const;
  void make_tiles(const Call& call, const Unit& unit, Worker& worker) const;
  std::int64_t first_tile(const Item& item, const Worker& worker, std::int64_t partition) const;
  QueryTile make_tile(const Call& call, const Item& item, std::int64_t kv_head, std::int64_t tile,
                      float* queries) const;
  void write_tile(const Call& call, const Item& item, std::int64_t kv_head, std::int64_t tile,
                  const SoftmaxState& state);
  std::int64_t state_floats(std::int64_t padded_dim) const;
  SoftmaxState state_at(float* base, std::int64_t index, std::int64_t padded_dim) const;
  void reset(const SoftmaxState& state, std::int64_t padded_dim) const;
  float* queries_at(const Call& call, const Worker& worker, std::int64_t index) const;
  void prepare_workers(const Call& call);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  std::vector<Item> items_;
  std::vector<Unit> units_;
  std::int64_t num_states_ = 0;
  std::vector<Worker> workers_;
  Scratch states_;
};

}  // namespace quire
