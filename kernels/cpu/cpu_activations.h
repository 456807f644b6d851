// ActivationPacker: turns the rows of a product's input into what the kernels multiply, making them (RMSNorm, SwiGLU)
// on the way: a row goes from memory through the first-level cache into its packed form. One thread at a time.
// Invariant: a packed row is the same whatever rows come with it, and whether it was made here or before.
#pragma once

#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/thread_pool.h"

namespace quire {

// The forms that a product's parts multiply.
struct WantedActivations {
  bool blocks = false;
  bool floats = false;
  bool halves = false;
  bool pairs = false;
  std::span<const std::int32_t> order = {};  // which value of a row comes at a place; empty: its own
};

// Laid out as GemmArgs says; null where not wanted. Until the next pack().
struct PackedActivations {
  const ActBlock* blocks = nullptr;
  const float* floats = nullptr;
  const std::uint16_t* halves = nullptr;
  const std::uint16_t* pairs = nullptr;
};

class ActivationPacker {
 public:
  ActivationPacker(const KernelTable& kernels, ThreadPool& pool);

  PackedActivations pack(const ProductInput& input, WantedActivations wanted);

 private:
  const float* make_row(const ProductInput& input, std::int64_t row, float* room) const;
  const float* in_order(const float* values, float* room) const;
  void pack_row(const float* values, std::int64_t row, std::int64_t rows, std::int64_t depth);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  Scratch blocks_scratch_;
  Scratch floats_scratch_;
  Scratch halves_scratch_;
  Scratch pairs_scratch_;
  ActBlock* blocks_ = nullptr;
  float* floats_ = nullptr;
  std::uint16_t* halves_ = nullptr;
  std::uint16_t* pairs_ = nullptr;
  std::vector<Scratch> row_scratch_;  // for each worker
  std::vector<float*> made_row_;
  std::span<const std::int32_t> order_;
  std::vector<Scratch> order_scratch_;  // for each worker
  std::vector<float*> ordered_row_;
};

}  // namespace quire
