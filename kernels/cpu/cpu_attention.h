// AttentionRunner: divides paged attention among the compute threads. One thread at a time. Invariant: the context is
// cut at multiples of kPartition and partitions are merged in order, independent of the thread; the choice between the
// two ways of sharing changes no bit of the result, and neither does attending together with other sequences
// (SharedContext).
#pragma once

#include <vector>

#include "kernels/attention_mask.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_kv.h"
#include "kernels/cpu/machine/memory.h"
#include "kernels/cpu/machine/thread_pool.h"
#include "kernels/cpu/shared_context.h"

namespace quire {

class AttentionRunner {
 public:
  AttentionRunner(const KernelTable& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  void run(const CpuKvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
           const AttentionOptions& options, MatrixView out);

 private:
  // Rows of one sequence, or of several over their shared context; with each K/V head it forms a unit of work. Items of
  // a row follow each other by level: each begins with the result of the previous one.
  struct Item {
    std::int64_t first = 0;  // index of its first row in rows_
    std::int64_t num_rows = 0;
    std::int64_t context = 0;
    std::int64_t shared_tokens = 0;  // shared tokens after its last partition; 0: one sequence
    bool is_first = true;            // first item of its rows
    const std::int32_t* block_table = nullptr;
    std::int64_t first_partition = 0;  // first one that a row sees
    std::int64_t partitions = 0;       // counted from the first partition
    std::int64_t tiles = 0;            // tiles of query vectors per K/V head
    std::int64_t first_state = 0;      // split sharing: states per (head, partition, query tile)
  };
  // Groups [first_head, first_head + num_heads) of an item; with split sharing, in one partition only. An item with a
  // single tile takes several heads, because their K and V in a block are adjacent.
  struct Unit {
    std::int64_t item = 0;
    std::int64_t first_head = 0;
    std::int64_t num_heads = 0;
    std::int64_t partition = 0;
  };
  // A thread's memory: the kernel's scratch, packed queries of each head or tile, and states: kTilesTogether of
  // a partition, and the running ones of its heads or tiles.
  struct Worker {
    Scratch memory;
    float* scratch = nullptr;
    float* queries = nullptr;
    float* states = nullptr;
    float* rotated = nullptr;  // query vectors of one tile
    std::vector<QueryTile> tiles;
    std::vector<TileMask> masks;  // indexed by tile
  };
  // The arguments of one run. Query heads come in groups that share a K/V head; several groups may share one.
  struct Call {
    const CpuKvStorage* kv;
    std::int64_t layer;
    MatrixView q;
    MatrixView out;
    const AttentionOptions* options;
    const AttendKernel* kernel;
    std::int64_t num_groups;
    std::int64_t groups_each;  // groups per K/V head
    std::int64_t group;        // heads
    std::int64_t head_dim;     // floats of K
    std::int64_t value_dim;
    std::int64_t padded_dim;  // padded floats of V
    bool masked;
    bool rotated;  // K and V are, as int4 keeps them
  };

  // Items and units of one level. Levels run in order.
  struct Level {
    std::size_t first_item = 0;
    std::size_t end_item = 0;
    std::size_t first_unit = 0;
    std::size_t end_unit = 0;
    std::int64_t most_partitions = 0;
  };

  Call call_of(const CpuKvStorage& kv, std::int64_t layer, MatrixView q, const AttentionOptions& options,
               MatrixView out) const;
  // Makes the items, level by level, then their units.
  void plan(const Call& call, const AttentionBatch& batch);
  void plan_rows(const AttentionBatch& batch);
  void plan_shared(const Call& call, const AttentionBatch& batch, const SharedContext::Group& group);
  void plan_rest(const Call& call, const AttentionBatch& batch, std::int64_t max_rows);
  void add_item(const Call& call, Item item);
  void end_level();
  bool pays_to_split(const Call& call) const;
  void plan_units(std::int64_t num_groups, bool split);
  void run_whole(const Call& call);
  void run_split(const Call& call);
  void merge_parts(const Call& call, const Item& item, std::int64_t group, float* states, const SoftmaxState& total);
  template <class StateOf>
  void run_partition(const Call& call, const Unit& unit, Worker& worker, const StateOf& state_of);
  void run_tiles(const Call& call, const Unit& unit, Worker& worker);
  void run_heads(const Call& call, const Unit& unit, Worker& worker);
  void make_head_tiles(const Call& call, const Unit& unit, Worker& worker, KvHeadView* views) const;
  void make_tiles(const Call& call, const Unit& unit, Worker& worker) const;
  KvHeadView view_of(const Call& call, std::int64_t group) const;
  // The worker's tile `index` becomes this one of the group's.
  void make_tile(const Call& call, const Item& item, std::int64_t group, std::int64_t tile, Worker& worker,
                 std::int64_t index) const;
  void set_mask(const Call& call, const Item& item, std::int64_t group, std::int64_t tile, TileMask* mask,
                QueryTile* out) const;
  void end_tile(const Call& call, const Item& item, std::int64_t group, std::int64_t tile, const SoftmaxState& state);
  // A query between two levels.
  float* total_of(const Call& call, std::int64_t row, std::int64_t head) const;
  std::int64_t state_floats(const Call& call) const;
  SoftmaxState state_at(const Call& call, float* base, std::int64_t index) const;
  void reset(const Call& call, const SoftmaxState& state) const;
  // Starts a tile's result from the items before it, from its heads' sinks, or from nothing.
  void begin_tile(const Call& call, const Item& item, std::int64_t group, std::int64_t tile,
                  const SoftmaxState& state) const;
  float* queries_at(const Call& call, const Worker& worker, std::int64_t index) const;
  void prepare_workers(const Call& call);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  SharedContext shared_;
  std::vector<std::int32_t> rows_;       // the step's rows in order, then rows of items of several sequences
  std::vector<std::int64_t> positions_;  // indexed by row of the step
  AttentionBatch batch_;                 // arguments of the running operation
  std::vector<Item> items_;
  std::vector<Unit> units_;
  std::vector<Level> levels_;
  float* totals_ = nullptr;
  std::int64_t num_states_ = 0;
  std::vector<Worker> workers_;
  Scratch states_;
  Scratch totals_memory_;
};

}  // namespace quire
