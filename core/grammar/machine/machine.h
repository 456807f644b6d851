// Machine: the pushdown automaton over bytes that a Program describes; a set of threads reads the text in parallel.
// One thread at a time, under Program::mutex. Invariant: every thread that step() yields can still be completed; a byte
// that no thread survives is forbidden. Every step may throw Exhausted, after which it is of no use.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/grammar/limits.h"
#include "core/grammar/machine/byte_set.h"
#include "core/grammar/machine/key_set.h"
#include "core/grammar/machine/program.h"
#include "core/grammar/machine/stack.h"

namespace quire::grammar {

enum class Position : std::uint8_t {
  kDone,
  kValue,
  kString,
  kBare,
  kObjectFirst,
  kKey,
  kColon,
  kAfterProperty,
  kNextKey,
  kArrayFirst,
  kAfterItem,
  kRule,
};

struct Thread {
  Position position = Position::kDone;
  std::uint16_t spaces = 0;  // whitespace since the last token
  std::uint16_t string = 0;  // kString: index of the node's shape
  std::uint32_t shape = 0;   // node, or object shape for kKey
  std::uint32_t state = 0;   // state of the current lexer
  // Texts that must differ (kKey, and items with a supply) are followed in `text`, an unfinished code point byte by
  // byte, with `count` as the text before it. For other strings `count` is the number of code points so far.
  std::uint32_t count = 0;
  std::uint32_t text = 0;
  std::uint32_t frame = 0;
  auto operator<=>(const Thread&) const = default;
};

using Threads = std::vector<Thread>;

class Machine {
 public:
  explicit Machine(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  Threads start();
  // Takes over the stack and the allowance of `other`, a machine of the same program.
  void assign(const Machine& other) {
    stack_ = other.stack_;
    allowance_ = other.allowance_;
  }
  // Appends the threads after the byte; false if none survives.
  bool step(const Threads& from, std::uint8_t byte, Threads& out);
  // Replaces the threads by those after the bytes; false if none survives.
  bool read(std::string_view bytes, Threads& threads);
  // Whether the text so far is complete.
  bool complete(const Threads& threads);
  // Whether only the end may follow.
  static bool only_done(const Threads& threads);

  // Parts of a step, for the preparation of masks.
  void begin_step() {
    called_.clear();
    entered_.clear();
  }
  void finish_value(std::uint32_t frame, Threads& out);
  // Ends a string or bare value with the text `text` as an item that must differ from the others.
  void finish_item(std::uint32_t frame, std::uint32_t text, Threads& out);
  void finish_key(const Thread& thread, std::uint32_t label, Threads& out);
  void step_thread(const Thread& thread, std::uint8_t byte, Threads& out);
  bool key_live(const Thread& thread);
  // Adds the bytes that the thread may read next (perhaps some more).
  void first_bytes(const Thread& thread, ByteSet& set);
  // Whether an unnamed key is already in the thread's object.
  bool used(const Frame& frame, std::uint32_t text) const;
  // Enters the rules called at `state`, without reading a character there. `frame` is below them.
  void enter_calls(std::uint32_t state, std::uint32_t frame, Threads& out);
  const StringShape& string_of(const Thread& thread) const {
    return program_->nodes[thread.shape].strings[thread.string];
  }
  const Program& program() const { return *program_; }
  Stack& stack() { return stack_; }
  // Whether a step has finished a value on kBaseFrame since the last call.
  bool take_base_reached() { return std::exchange(base_reached_, false); }
  // Whether such a value had ended before the byte, which then belongs to the text after it.
  bool take_base_passed() { return std::exchange(base_passed_, false); }
  // Bound on the cost of following the text; each step spends from it.
  Allowance& allowance() { return allowance_; }
  // Drops stack entries that no thread stands on any more.
  void compact(Threads& threads);
  // Compacts, and merges equivalent frames and threads.
  void merge(Threads& threads);

 private:
  class Compactor;
  void drop_ended(Threads& threads) const;
  void push(Threads& out, const Thread& thread);
  bool counts_conditions(const Thread& thread) const;
  bool surpasses(const Thread& a, const Thread& b) const;
  bool shareable(const Thread& thread) const;
  void share_values(Threads& threads);
  void begin_value(std::uint32_t node, std::uint32_t frame, std::uint8_t byte, Threads& out);
  void step_string(const Thread& thread, std::uint8_t byte, Threads& out);
  void step_bare(const Thread& thread, std::uint8_t byte, Threads& out);
  void step_key(const Thread& thread, std::uint8_t byte, Threads& out);
  void step_rule(const Thread& thread, std::uint8_t byte, Threads& out);
  void step_object(const Thread& thread, std::uint8_t byte, Threads& out);
  void step_array(const Thread& thread, std::uint8_t byte, Threads& out);
  void finish_bare(const Thread& thread, Threads& out);
  bool supply_live(const Thread& thread, ByteLexer& lexer, const Supply& supply);
  template <class Live>
  bool some_completion(const Thread& thread, ByteLexer& lexer, const Live& live);
  std::uint64_t num_taken(const Frame& frame, std::uint32_t prefix) const;
  void extend_key(Thread& thread, std::uint8_t byte, bool completes, bool was_inside);
  void begin_key(const Thread& thread, Threads& out);
  void begin_property_value(const Thread& thread, Threads& out);
  void begin_items(std::uint32_t frame, Threads& out);
  std::uint32_t begin_item(std::uint32_t frame, const ItemChoice& choice);
  bool can_close_object(const Frame& frame) const;
  bool can_close_array(const Frame& frame) const;
  bool reach_live(const Frame& frame, const KeyReach& reach, std::uint32_t text, bool exact) const;
  void enter_rule(std::uint32_t state, std::uint32_t frame, Threads& out);
  void call(const CallEdge& edge, std::uint32_t frame, Threads& out);
  bool only_accepts(std::uint32_t state) const;
  bool enters_anew(const Thread& thread, const Threads& out);

  // A symbol called in the current step, its frame, and whether it has already returned.
  struct Called {
    std::uint32_t symbol;
    std::uint32_t frame;
    bool returned;
  };

  std::shared_ptr<const Program> program_;
  Stack stack_;
  Allowance allowance_;
  std::vector<Called> called_;
  KeySet entered_;         // rule threads of the current step, once they are many
  Threads waiting_;        // rule threads whose calls and returns are not followed yet
  bool entering_ = false;  // whether a loop over them is running
  bool base_reached_ = false;
  bool base_passed_ = false;

  // Memory lent to calls, so that reading a text allocates nothing in the long run.
  Threads next_;
  Threads items_;
  Threads ended_;
  Threads key_;
  std::vector<Called> other_called_;
  KeySet other_entered_;
  Stack other_stack_;
  struct Renumbered {  // by index in the old stack: the index in the new one
    std::vector<std::uint32_t> frames, texts, used;
    std::vector<std::uint32_t> order;  // frames in the order of numbering
    std::vector<std::uint32_t> used_chain, text_chain;
  };
  Renumbered renumbered_;
};

// Equivalent frames of a stack, from which the same texts can follow: they return to the same states on equivalent
// frames (bisimulation). By frame: the frame that may replace it, or itself. Empty if none is found within a bounded
// number of iterations. Spends from the allowance.
std::vector<std::uint32_t> find_alike(const Stack& stack, const Threads& threads, Allowance& allowance);

}  // namespace quire::grammar
