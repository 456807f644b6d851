// Batch: one step's decision: who computes how many tokens, and which blocks are copied before. Engine thread only.
// Reused from step to step, so that a steady step allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kv/block_table.h"
#include "core/sched/sequence.h"

namespace quire {

struct BatchEntry {
  Sequence* sequence;
  std::int64_t num_tokens;  // from sequence->num_computed on
};

struct Batch {
  std::vector<BatchEntry> entries;
  std::vector<BlockCopy> copies;
  std::vector<Sequence*> preempted;
  std::vector<Sequence*> started;  // for the first time
  std::int64_t num_tokens = 0;
  std::int64_t num_streaming = 0;      // entries that continue a generation; they come first
  std::int64_t num_prompt_tokens = 0;  // of num_tokens, in the other entries

  bool empty() const { return entries.empty(); }
  void clear() {
    entries.clear();
    copies.clear();
    preempted.clear();
    started.clear();
    num_tokens = 0;
    num_streaming = 0;
    num_prompt_tokens = 0;
  }
};

}  // namespace quire
