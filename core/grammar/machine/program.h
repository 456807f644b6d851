// Program: a compiled grammar: the constant tables that every Machine of that grammar reads. Immutable after
// construction, except that its lexers fill their rows on use (under Program::mutex). JSON values are nodes with
// dynamic object and array frames, so that properties may come in any order without a larger grammar; rules of EBNF and
// the like are one automaton with calls.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/grammar/machine/byte_lexer.h"
#include "core/grammar/machine/count_plan.h"
#include "core/grammar/machine/lengths.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

inline constexpr std::uint32_t kNoIndex = 0xFFFFFFFFu;
inline constexpr std::uint16_t kMaxSpaces = 512;  // bound of Program::max_spaces

// Continuations of a lexer's state whose texts must differ: keys of an object, or items of an array.
struct KeyReach {
  bool endless = false;           // some are always left
  std::uint32_t first_named = 0;  // named keys [first_named, last_named)
  std::uint32_t last_named = 0;
  std::uint64_t num_finite = 0;  // keys of finite unnamed classes
};
using Supply = std::shared_ptr<const std::vector<KeyReach>>;  // per code state

// A shape of string: its characters, and how many of them.
struct StringShape {
  LexerPtr lexer;
  std::uint32_t min = 0;
  std::uint32_t max = kUnbounded;
  std::shared_ptr<const Lengths> lengths;  // null: only the lexer decides
  Supply supply;                           // for items that must differ; null otherwise

  bool bounded() const { return lengths != nullptr; }
  bool plain() const { return lengths == nullptr && supply == nullptr; }  // only the lexer decides
  bool live(std::uint32_t code_state, std::uint32_t count) const {
    if (count > max) return false;
    return lengths->reachable(code_state, count < min ? min - count : 0,
                              max == kUnbounded ? Lengths::kEndless : max - count);
  }
};

// A value that a key may take, and the conditions that it then meets (bits after the named keys).
struct Choice {
  std::uint32_t node = 0;
  std::uint64_t marks = 0;
};

// Keys that an object treats alike. A named class is a single key; others are distinguished by their text.
struct KeyClass {
  std::vector<Choice> choices;
  bool is_named = false;
  std::uint32_t named = kNoIndex;  // bit among the seen keys, if is_named
  bool required = false;
};

struct ObjectShape {
  LexerPtr keys;  // null: no key is possible; labels are classes
  std::vector<KeyClass> classes;
  std::vector<KeyReach> reach;          // per code state of `keys`
  bool all_open = false;                // from every state, every text is a prefix of endless keys
  LexerPtr any_text;                    // lexer of plain strings, if all_open
  std::vector<std::uint64_t> required;  // over named keys
  std::uint32_t num_named = 0;
  std::uint32_t num_required = 0;
  std::uint32_t num_marks = 0;  // conditions that some property must meet
  std::uint32_t min = 0;
  std::uint32_t max = kUnbounded;
  std::size_t num_words() const { return num_named / 64 + 1 + (num_marks > 0 ? 1 : 0); }
};

// A value that an item may take, and the conditions on the number of items that it counts for.
struct ItemChoice {
  std::uint32_t node = 0;
  std::uint32_t counted = 0;  // bit i: counts for contains[i]
};

struct ArrayShape {
  std::vector<std::vector<ItemChoice>> prefix;
  std::vector<ItemChoice> rest;
  std::uint32_t min = 0;
  std::uint32_t max = kUnbounded;
  std::vector<ContainsRule> contains;
  std::shared_ptr<const CountPlan> counts;  // null: nothing is counted
  bool unique = false;                      // items must differ; they are scalars
  const std::vector<ItemChoice>& choices(std::uint32_t index) const {
    return index < prefix.size() ? prefix[index] : rest;
  }
};

// The position of a JSON value: the union of its shapes.
struct ValueNode {
  LexerPtr bare;          // numbers, true, false, null; null: none is possible
  Supply bare_supply;     // for items that must differ; null otherwise
  bool by_value = false;  // supplied items are numbers in any spelling, compared by value
  std::vector<StringShape> strings;
  std::vector<std::uint32_t> arrays;   // indices of Program::arrays
  std::vector<std::uint32_t> objects;  // indices of Program::objects
};

// A symbol that a rule calls: another rule, or a JSON value.
struct Symbol {
  bool is_value = false;
  std::uint32_t index = 0;  // index of the node, or the rule's start state
};

struct Program {
  std::vector<ValueNode> nodes;
  std::vector<ArrayShape> arrays;
  std::vector<ObjectShape> objects;
  LexerPtr rules;  // null: plain JSON
  std::vector<Symbol> symbols;
  std::vector<std::string> rule_names;  // names of the first symbols, if the grammar names its rules
  Symbol start;
  std::uint16_t max_spaces = kMaxSpaces;     // longest run of JSON's whitespace between two tokens
  std::shared_ptr<std::mutex> mutex;         // guards all lexers shared with other programs
  std::shared_ptr<PreparedMemory> prepared;  // memory of these lexers' tables; null: unbounded

  // All lexers, each once.
  std::vector<LexerPtr> lexers() const;
  // Memory kept as long as the program, its lexers included.
  std::size_t num_bytes() const;
};

}  // namespace quire::grammar
