// ActivationPacker: packs the rows of products' inputs for the kernels, and makes them (RMSNorm, SwiGLU) on the way: a
// row goes from memory through the first-level cache into its packed form. One thread at a time. Invariant: a packed
// row does not depend on the rows beside it, nor on whether it was made here or before.
#pragma once

#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/machine/memory.h"
#include "kernels/cpu/machine/thread_pool.h"

namespace quire {

// Forms of activations that a product's matrices multiply.
struct WantedActivations {
  bool blocks = false;
  bool floats = false;
  bool halves = false;
  bool pairs = false;
  std::span<const std::int32_t> order = {};  // index of the value at each place; empty: its own
};

// Laid out as GemmArgs says; null where not wanted. Valid until the next pack().
struct PackedActivations {
  const ActBlock* blocks = nullptr;
  const float* floats = nullptr;
  const std::uint16_t* halves = nullptr;
  const std::uint16_t* pairs = nullptr;
};

// The input of one product: the rows of x that `rows` names, or all of them.
struct PackJob {
  ProductInput x;
  std::span<const std::int32_t> rows;
  WantedActivations wanted;

  std::int64_t num_rows() const { return rows.data() == nullptr ? x.x.rows : std::ssize(rows); }
  std::int64_t source(std::int64_t row) const {
    return rows.data() == nullptr ? row : rows[static_cast<std::size_t>(row)];
  }
  // Blocks of rows that several jobs may name are made once for all of them.
  bool shares_blocks() const { return rows.data() != nullptr && wanted.blocks && wanted.order.empty(); }
};

class ActivationPacker {
 public:
  ActivationPacker(const KernelTable& kernels, ThreadPool& pool);

  // packed[i] is the result for jobs[i]. Jobs that name rows have the same x.
  void pack(std::span<const PackJob> jobs, std::vector<PackedActivations>& packed);

 private:
  // Destinations of a job's rows.
  struct Room {
    ActBlock* blocks = nullptr;
    float* floats = nullptr;
    std::uint16_t* halves = nullptr;
    std::uint16_t* pairs = nullptr;
  };
  // Rows [begin, end) of a job.
  struct Piece {
    std::size_t job;
    std::int64_t begin;
    std::int64_t end;
  };

  void make_shared_blocks(std::span<const PackJob> jobs);
  void find_rooms(std::span<const PackJob> jobs);
  void plan(std::span<const PackJob> jobs);
  void reserve_workers(std::span<const PackJob> jobs);
  const float* make_row(const ProductInput& input, std::int64_t row, int worker) const;
  const float* in_order(std::span<const std::int32_t> order, const float* values, int worker) const;
  void pack_row(const PackJob& job, const Room& room, std::int64_t row, int worker) const;
  void pack_values(const PackJob& job, const Room& room, std::int64_t row, int worker) const;

  const KernelTable& kernels_;
  ThreadPool& pool_;
  Scratch shared_scratch_;
  Scratch blocks_scratch_;
  Scratch floats_scratch_;
  Scratch halves_scratch_;
  Scratch pairs_scratch_;
  const ActBlock* shared_ = nullptr;  // [row of x][depth / 32]
  std::vector<Room> rooms_;
  std::vector<Piece> pieces_;
  std::vector<Scratch> row_scratch_;  // for each worker
  std::vector<float*> made_row_;
  std::vector<Scratch> order_scratch_;  // for each worker
  std::vector<float*> ordered_row_;
};

}  // namespace quire
