#include "core/grammar/regex/regex.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace quire::grammar {

namespace {

using Kind = Expression::Kind;

bool has(const Expression& expression, Kind kind) {
  if (expression.kind == kind) return true;
  return std::any_of(expression.children.begin(), expression.children.end(),
                     [kind](const Expr& child) { return has(*child, kind); });
}

// The texts that begin with `condition`, or those that do not. A look-ahead inside the condition sees past its end.
Dfa begins_with(const Expr& condition, bool negated, Budget& budget) {
  if (has(*condition, Kind::kBegin)) throw Refusal("an anchor inside look-ahead is not supported");
  const Dfa dfa = build_full(resolve_ahead(condition, make_everything(), budget), budget);
  return negated ? complement(dfa) : dfa;
}

Expr restricted(const Expr& condition, bool negated, const Expr& rest, Budget& budget) {
  if (has(*rest, Kind::kBegin)) throw Refusal("look-ahead before an anchor is not supported");
  const Dfa rest_dfa = build_full(rest, budget);
  return make_automaton(std::make_shared<Dfa>(intersect(rest_dfa, begins_with(condition, negated, budget), budget)));
}

// ((?!x)c)* up to the end of the text: repetitions of c in which x does not begin anywhere.
Expr guarded_repeat(const Expression& repeat, const Expr& rest, Budget& budget) {
  const Expression& body = *repeat.children.front();
  const bool fits = body.kind == Kind::kConcat && body.children.size() == 2 && body.children[0]->kind == Kind::kAhead &&
                    body.children[0]->negated && body.children[1]->kind == Kind::kSet && repeat.max == kUnbounded &&
                    (rest->kind == Kind::kEmpty || rest->kind == Kind::kEnd ||
                     (rest->kind == Kind::kConcat && rest->children.front()->kind == Kind::kEnd));
  if (!fits) throw Refusal("look-ahead inside this repetition is not supported");
  const Expr& condition = body.children[0]->children[0];
  const Dfa empty_match = build_full(condition, budget);
  if (has(*condition, Kind::kBegin) || has(*condition, Kind::kEnd) || empty_match.accept[empty_match.start] != 0) {
    throw Refusal("look-ahead inside this repetition is not supported");
  }
  const Dfa plain = build_full(make_repeat(body.children[1], repeat.min, kUnbounded), budget);
  const Dfa found = build_full(make_concat({make_everything(), condition, make_everything()}), budget);
  return make_automaton(std::make_shared<Dfa>(intersect(plain, complement(found), budget)));
}

}  // namespace

Expr resolve_ahead(const Expr& expression, const Expr& rest, Budget& budget) {
  budget.spend(1);
  if (!has(*expression, Kind::kAhead)) {
    return rest->kind == Kind::kEmpty ? expression : make_concat({expression, rest});
  }
  switch (expression->kind) {
    case Kind::kAhead: return restricted(expression->children.front(), expression->negated, rest, budget);
    case Kind::kConcat: {
      Expr tail = rest;
      for (auto child = expression->children.rbegin(); child != expression->children.rend(); ++child) {
        tail = resolve_ahead(*child, tail, budget);
      }
      return tail;
    }
    case Kind::kAlternate: {
      std::vector<Expr> branches;
      for (const Expr& child : expression->children)
        branches.push_back(resolve_ahead(child, rest, budget));
      return make_alternate(std::move(branches));
    }
    case Kind::kRepeat: {
      const Expr& child = expression->children.front();
      if (expression->max == 1 && expression->min == 0)
        return make_alternate({rest, resolve_ahead(child, rest, budget)});
      if (expression->max == 1) return resolve_ahead(child, rest, budget);
      return guarded_repeat(*expression, rest, budget);
    }
    default: throw Refusal("look-ahead at this place of a regex is not supported");
  }
}

}  // namespace quire::grammar
