// Fewer threads and frames for the same readings: without these rules, ambiguous schemas and rules would double their
// threads with every property, level or byte. One thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "core/grammar/limits.h"
#include "core/grammar/machine/program.h"
#include "core/grammar/machine/stack.h"
#include "core/grammar/machine/thread.h"

namespace quire::grammar {

// Whether the thread stands between the members or items of an object or array that counts conditions.
bool counts_conditions(const Thread& thread, const Program& program, const Stack& stack);
// Whether all texts that may follow `b` may follow `a`, for threads that count conditions: `a` has met at least as much
// and is otherwise equal.
bool meets_as_much(const Thread& a, const Thread& b, const Program& program, const Stack& stack);
// Joins threads that begin equal values: a shared frame returns to each caller.
void share_values(Threads& threads, const Program& program, Stack& stack);

// Equivalent frames of a stack, from which the same texts can follow: they return to the same states on equivalent
// frames (bisimulation). By frame: the frame that may replace it, or itself. Empty if none is found within a bounded
// number of iterations. Spends from the allowance.
std::vector<std::uint32_t> find_alike(const Stack& stack, const Threads& threads, Allowance& allowance);

// Copies of stacks without the entries that no thread stands on, so that a long generation does not keep its old
// frames. Its memory is kept between calls.
class Compactor {
 public:
  void compact(Stack& stack, Threads& threads, const Program& program);
  // Merges equivalent frames and equal threads as well.
  void merge(Stack& stack, Threads& threads, const Program& program, Allowance& allowance);

 private:
  class Copy;
  struct Renumbered {  // indices in the new stack, by those in the old one
    std::vector<std::uint32_t> frames, texts, used;
    std::vector<std::uint32_t> order;  // frames in the order of numbering
    std::vector<std::uint32_t> used_chain, text_chain;
  };

  Stack fresh_;
  Renumbered renumbered_;
};

}  // namespace quire::grammar
