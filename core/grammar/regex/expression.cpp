#include "core/grammar/regex/expression.h"

#include <utility>

#include "core/grammar/limits.h"

namespace quire::grammar {

namespace {

std::shared_ptr<Expression> make(Expression::Kind kind) {
  auto expression = std::make_shared<Expression>();
  expression->kind = kind;
  return expression;
}

}  // namespace

Expr make_empty() {
  return make(Expression::Kind::kEmpty);
}

Expr make_set(CharSet set) {
  auto expression = make(Expression::Kind::kSet);
  expression->set = std::move(set);
  return expression;
}

Expr make_concat(std::vector<Expr> children) {
  if (children.empty()) return make_empty();
  if (children.size() == 1) return children.front();
  auto expression = make(Expression::Kind::kConcat);
  expression->children = std::move(children);
  return expression;
}

Expr make_alternate(std::vector<Expr> children) {
  if (children.size() == 1) return children.front();
  auto expression = make(Expression::Kind::kAlternate);
  expression->children = std::move(children);
  return expression;
}

Expr make_repeat(Expr child, std::uint32_t min, std::uint32_t max) {
  auto expression = make(Expression::Kind::kRepeat);
  expression->children = {std::move(child)};
  expression->min = min;
  expression->max = max;
  return expression;
}

Expr make_everything() {
  return make_repeat(make_set(CharSet::any()), 0, kUnbounded);
}

Expr make_call(std::uint32_t symbol) {
  auto expression = make(Expression::Kind::kCall);
  expression->call = symbol;
  return expression;
}

Expr make_automaton(std::shared_ptr<const Dfa> dfa) {
  auto expression = make(Expression::Kind::kAutomaton);
  expression->dfa = std::move(dfa);
  return expression;
}

Expr make_anchor(Expression::Kind kind) {
  return make(kind);
}

Expr make_literal(std::string_view text, bool ignore_case) {
  std::u32string points;
  if (!decode_utf8(text, points)) throw Refusal("a literal is not valid UTF-8");
  std::vector<Expr> children;
  for (const char32_t c : points) {
    CharSet set(c, c);
    if (ignore_case) set.fold_ascii_case();
    children.push_back(make_set(std::move(set)));
  }
  return make_concat(std::move(children));
}

}  // namespace quire::grammar
