// ByteLexer: a Dfa over code points read byte by byte, as UTF-8 text or as the inside of a JSON string (with escapes).
// One thread at a time: rows are computed on first use and kept. Invariant: a live state always has a completion.
// In JSON strings every escape is taken, so a character has several spellings; canonical_json() is the usual one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/grammar/machine/byte_set.h"
#include "core/grammar/machine/prepared_memory.h"
#include "core/grammar/regex/dfa.h"

namespace quire::grammar {

struct LexerContexts;

class ByteLexer {
 public:
  enum class Encoding : std::uint8_t { kUtf8, kJsonString };
  static constexpr std::uint32_t kCompletes = 1u << 31;  // flag of step(): this byte completes a code point
  static constexpr std::uint32_t kInside = 0xFFFFFFFFu;  // code_state() within a code point

  ByteLexer(DfaPtr dfa, Encoding encoding);

  // The byte state for a state of the Dfa; 0 is dead.
  std::uint32_t entry(std::uint32_t code_state) const { return code_state; }
  std::uint32_t start() const { return dfa_->start; }
  // The next state (0: dead), with kCompletes set if a code point ends here.
  std::uint32_t step(std::uint32_t state, std::uint8_t byte) {
    Row* row = rows_[state].get();
    return (row != nullptr ? *row : compute_row(state)).next[byte];
  }
  // The bytes that may follow the state.
  const ByteSet& live_bytes(std::uint32_t state) {
    Row* row = rows_[state].get();
    return (row != nullptr ? *row : compute_row(state)).live;
  }
  // The Dfa's state, or kInside between the bytes of one code point.
  std::uint32_t code_state(std::uint32_t state) const { return state < dfa_->num_states() ? state : kInside; }
  bool inside(std::uint32_t state) const { return code_state(state) == kInside; }
  // 0, or 1 + the label of the text so far.
  std::uint32_t accept(std::uint32_t state) const { return state < dfa_->num_states() ? dfa_->accept[state] : 0; }
  // Calls fn(target) for the distinct Dfa states that the unfinished code point can still lead to.
  template <class Fn>
  void for_each_target(std::uint32_t state, Fn fn) const;
  // Adds the characters that may follow a state between two characters to `found`, each once. False, with some left
  // out, if they are more than `most`.
  bool add_few_characters(std::uint32_t state, std::size_t most, std::u32string& found) const;
  // True if no further code point can follow.
  bool is_final(std::uint32_t state) const { return state < final_.size() && final_[state]; }
  const Dfa& dfa() const { return *dfa_; }
  Encoding encoding() const { return encoding_; }
  // The masks prepared for states of this lexer; only core/grammar/mask looks inside.
  std::shared_ptr<LexerContexts> contexts;
  PreparedBytes prepared;  // rows and contexts
  void drop_prepared();
  // Memory kept as long as the lexer: its automaton, and the states inside code points that texts have visited.
  std::size_t num_bytes() const;

 private:
  struct Row {
    std::array<std::uint32_t, 256> next{};
    ByteSet live;
  };
  enum class Stage : std::uint8_t { kNone, kUtf8, kUtf8Uniform, kEscape, kHex, kHexUniform, kLowSlash, kLowU, kLowHex };
  // A position inside a code point: `left` bytes or digits to come, `value` the part known so far. In the uniform
  // stages every completion leads to the same state, which `code` then already is.
  struct Partial {
    Stage stage = Stage::kNone;
    std::uint8_t left = 0;
    std::uint32_t code = 0;
    std::uint32_t value = 0;
  };

  Row& compute_row(std::uint32_t state);
  std::uint32_t step_partial(const Partial& from, std::uint8_t byte);
  std::uint32_t step_first(std::uint32_t code, std::uint8_t byte);
  std::uint32_t step_escape(std::uint32_t code, std::uint8_t byte);
  std::uint32_t step_hex(const Partial& from, std::uint8_t byte);
  std::uint32_t complete(std::uint32_t code, char32_t c) const;
  // States for a range of code points still to be distinguished; 0 if none of them is live.
  std::uint32_t open_utf8(std::uint32_t code, std::uint32_t value, std::uint8_t left);
  std::uint32_t open_hex(std::uint32_t code, std::uint32_t value, std::uint8_t left, Stage stage);
  std::uint32_t intern(const Partial& partial);
  // The targets of [lo, hi]. True if all are the same live state, which is then `only`; `live`: some target is live.
  bool uniform(std::uint32_t code, char32_t lo, char32_t hi, std::uint32_t& only, bool& live) const;
  bool any_live(std::uint32_t code, char32_t lo, char32_t hi) const;
  // The leads E0 and F0 also begin overlong forms, whose code points are below their range.
  static char32_t first_of_form(std::uint32_t value, std::uint8_t left) {
    return value != 0 ? 0 : left == 2 ? 0x800 : left == 3 ? 0x10000 : 0;
  }
  template <class Fn>
  void targets_in(std::uint32_t code, char32_t lo, char32_t hi, Fn fn) const;

  DfaPtr dfa_;
  std::vector<bool> final_;
  Encoding encoding_;
  std::vector<std::unique_ptr<Row>> rows_;
  std::vector<Partial> partials_;  // by state - num_states
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> known_;
};

// The character that a JSON string spells with these bytes: UTF-8, or an escape that a ByteLexer has accepted.
char32_t decode_json_character(std::string_view bytes);
// The usual spelling of a character in a JSON string: escaped only if necessary.
std::string canonical_json(char32_t c);

using LexerPtr = std::shared_ptr<ByteLexer>;

template <class Fn>
void ByteLexer::targets_in(std::uint32_t code, char32_t lo, char32_t hi, Fn fn) const {
  const auto& starts = dfa_->alphabet.starts();
  const auto& classes = dfa_->alphabet.run_classes();
  std::size_t low = 0;
  std::size_t high = starts.size();
  while (high - low > 1) {
    const std::size_t middle = (low + high) / 2;
    (starts[middle] <= lo ? low : high) = middle;
  }
  for (std::size_t run = low; run < starts.size() && starts[run] <= hi; ++run) {
    fn(dfa_->next[code * dfa_->alphabet.num_classes() + classes[run]]);
  }
}

template <class Fn>
void ByteLexer::for_each_target(std::uint32_t state, Fn fn) const {
  if (state < dfa_->num_states()) {
    fn(state);
    return;
  }
  const Partial& partial = partials_[state - dfa_->num_states()];
  char32_t lo = 0;
  char32_t hi = kMaxCodePoint;
  switch (partial.stage) {
    case Stage::kUtf8Uniform:
    case Stage::kHexUniform: fn(partial.code); return;
    case Stage::kUtf8:
      lo = partial.value << 6 * partial.left;
      hi = lo + (1u << 6 * partial.left) - 1;
      if (lo < first_of_form(partial.value, partial.left)) lo = first_of_form(partial.value, partial.left);
      break;
    case Stage::kHex:
      lo = partial.value << 4 * partial.left;
      hi = lo + (1u << 4 * partial.left) - 1;
      if (hi >= 0xD800 && lo <= 0xDBFF) targets_in(partial.code, 0x10000, kMaxCodePoint, fn);
      break;
    case Stage::kLowSlash:
    case Stage::kLowU:
    case Stage::kLowHex: lo = 0x10000; break;
    default: break;
  }
  targets_in(partial.code, lo, hi, fn);
}

}  // namespace quire::grammar
