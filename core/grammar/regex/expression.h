// Expression: the syntax tree that regular expressions and grammar rules share. Immutable after construction.
// A kCall stands for another rule or for a JSON value; only grammars make them. A kAutomaton embeds a finished Dfa,
// which is how intersections (look-ahead) re-enter a larger expression.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/grammar/regex/charset.h"

namespace quire::grammar {

struct Dfa;
struct Expression;
using Expr = std::shared_ptr<const Expression>;

inline constexpr std::uint32_t kUnbounded = 0xFFFFFFFFu;

struct Expression {
  enum class Kind { kEmpty, kSet, kConcat, kAlternate, kRepeat, kBegin, kEnd, kWordEdge, kCall, kAutomaton, kAhead };
  Kind kind = Kind::kEmpty;
  CharSet set;                     // kSet
  std::vector<Expr> children;      // kConcat, kAlternate; one for kRepeat and kAhead
  std::uint32_t min = 0;           // kRepeat
  std::uint32_t max = 0;           // kRepeat; kUnbounded: no limit
  std::uint32_t call = 0;          // kCall: the symbol called
  bool stays = false;              // kCall: the rule is not copied into its caller
  bool negated = false;            // kAhead: (?!...), kWordEdge: \B
  std::shared_ptr<const Dfa> dfa;  // kAutomaton
};

Expr make_empty();
Expr make_set(CharSet set);
Expr make_concat(std::vector<Expr> children);
Expr make_alternate(std::vector<Expr> children);
Expr make_repeat(Expr child, std::uint32_t min, std::uint32_t max);
// Every text.
Expr make_everything();
Expr make_call(std::uint32_t symbol);
Expr make_automaton(std::shared_ptr<const Dfa> dfa);
Expr make_anchor(Expression::Kind kind);
// The text itself; malformed UTF-8 throws Refusal.
Expr make_literal(std::string_view text, bool ignore_case = false);

}  // namespace quire::grammar
