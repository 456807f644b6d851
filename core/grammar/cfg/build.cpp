#include <algorithm>
#include <set>
#include <utility>

#include "core/grammar/cfg/rules.h"
#include "core/grammar/regex/dfa.h"
#include "core/grammar/regex/regex.h"

namespace quire::grammar {

namespace {

constexpr std::size_t kInlineUpTo = 400;  // parts of the largest body that is copied into its callers

void collect_calls(const Expression& expression, std::set<std::uint32_t>& calls) {
  if (expression.kind == Expression::Kind::kCall) calls.insert(expression.call);
  for (const Expr& child : expression.children)
    collect_calls(*child, calls);
}

// Approximate size of the expression's automaton.
std::size_t size_of(const Expression& expression) {
  std::size_t size = expression.dfa == nullptr ? 1 : expression.dfa->num_states();
  for (const Expr& child : expression.children)
    size += size_of(*child);
  if (expression.kind == Expression::Kind::kRepeat) {
    size *= std::max<std::size_t>(1, expression.max == kUnbounded ? expression.min + 1 : expression.max);
  }
  return std::min<std::size_t>(size, 1u << 24);
}

class Inliner {
 public:
  Inliner(std::vector<Expr> bodies, Budget& budget) : bodies_(std::move(bodies)), budget_(budget) {
    for (const Expr& body : bodies_) {
      calls_.emplace_back();
      collect_calls(*body, calls_.back());
    }
    find_recursion();
    places_.assign(bodies_.size(), kNoIndex);
  }

  // Returns the bodies that are still called, root first, with their calls renumbered.
  std::vector<Expr> run() {
    std::vector<Expr> result;
    queue(0);
    for (std::size_t i = 0; i < order_.size(); ++i)
      result.push_back(written(order_[i]));
    // Calls are numbered last: value symbols come after the remaining rules.
    for (Expr& body : result)
      body = renumber(body);
    return result;
  }

  // The bodies that run() kept, by their number before it.
  const std::vector<std::uint32_t>& order() const { return order_; }

 private:
  // Finds rules that can call themselves, directly or not: Tarjan's components, without recursion over long chains.
  void find_recursion() {
    const std::size_t n = bodies_.size();
    recurs_.assign(n, false);
    for (std::uint32_t rule = 0; rule < n; ++rule) {
      std::vector<bool> seen(n, false);
      std::vector<std::uint32_t> work{rule};
      while (!work.empty() && !recurs_[rule]) {
        const std::uint32_t at = work.back();
        work.pop_back();
        budget_.spend(1 + calls_[at].size());
        for (const std::uint32_t called : calls_[at]) {
          if (called == rule) recurs_[rule] = true;
          if (called >= n || seen[called]) continue;
          seen[called] = true;
          work.push_back(called);
        }
      }
    }
  }

  void queue(std::uint32_t rule) {
    if (places_[rule] != kNoIndex) return;
    places_[rule] = static_cast<std::uint32_t>(order_.size());
    order_.push_back(rule);
  }

  const Expr& written(std::uint32_t rule) {
    written_.resize(bodies_.size());
    if (written_[rule] == nullptr) written_[rule] = substitute(bodies_[rule], 0);
    return written_[rule];
  }

  Expr substitute(const Expr& expression, std::size_t depth) {
    if (depth > 8 * budget_.limits().max_depth) throw Refusal("the grammar nests too deeply");
    budget_.spend(1);
    if (expression->kind == Expression::Kind::kCall && expression->call < bodies_.size()) {
      const std::uint32_t rule = expression->call;
      if (!recurs_[rule] && !expression->stays) {
        const Expr& body = written(rule);
        if (size_of(*body) <= kInlineUpTo) return body;
      }
      queue(rule);
      return expression;
    }
    if (expression->children.empty()) return expression;
    auto copy = std::make_shared<Expression>(*expression);
    for (Expr& child : copy->children)
      child = substitute(child, depth + 1);
    return copy;
  }

  Expr renumber(const Expr& expression) {
    budget_.spend(1);
    if (expression->kind == Expression::Kind::kCall) {
      if (expression->call >= bodies_.size()) {
        return make_call(static_cast<std::uint32_t>(expression->call - bodies_.size() + order_.size()));
      }
      return make_call(places_[expression->call]);
    }
    if (expression->children.empty()) return expression;
    auto copy = std::make_shared<Expression>(*expression);
    for (Expr& child : copy->children)
      child = renumber(child);
    return copy;
  }

  std::vector<Expr> bodies_;
  Budget& budget_;
  std::vector<std::set<std::uint32_t>> calls_;
  std::vector<bool> recurs_;
  std::vector<Expr> written_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> places_;  // index in order_, by rule; kNoIndex: not in it
};

}  // namespace

void build_bodies(std::vector<Expr> bodies, const std::vector<Symbol>& values, Budget& budget, Program& program,
                  const std::vector<std::string>& names) {
  Inliner inliner(std::move(bodies), budget);
  const std::vector<Expr> left = inliner.run();
  for (const std::uint32_t body : inliner.order()) {
    if (!names.empty()) program.rule_names.push_back(names[body]);
  }
  std::vector<bool> live(left.size() + values.size(), true);
  std::vector<std::uint32_t> starts;
  auto dfa = std::make_shared<Dfa>(build_rules(left, live, starts, budget));
  if (starts[0] == 0) throw Refusal("no text satisfies the grammar");
  for (const std::uint32_t start : starts)
    program.symbols.push_back({false, start});
  program.symbols.insert(program.symbols.end(), values.begin(), values.end());
  program.rules = std::make_shared<ByteLexer>(std::move(dfa), ByteLexer::Encoding::kUtf8);
  program.start = {false, starts[0]};
}

Expr with_calls_moved(const Expr& expression, std::uint32_t by, Budget& budget) {
  budget.spend(1);
  if (expression->kind == Expression::Kind::kCall) return make_call(expression->call + by);
  if (expression->children.empty()) return expression;
  auto copy = std::make_shared<Expression>(*expression);
  for (Expr& child : copy->children)
    child = with_calls_moved(child, by, budget);
  return copy;
}

void build_rules_program(const std::vector<Rule>& rules, const std::string& root, Budget& budget, Program& program) {
  const auto found = std::find_if(rules.begin(), rules.end(), [&](const Rule& rule) { return rule.name == root; });
  if (found == rules.end()) throw Refusal("the grammar has no rule named " + root);
  std::vector<Expr> bodies{make_call(static_cast<std::uint32_t>(found - rules.begin()) + 1)};
  // A body comes before the rules, so calls are shifted by 1.
  std::vector<std::string> names{root};
  for (const Rule& rule : rules) {
    bodies.push_back(with_calls_moved(rule.body, 1, budget));
    names.push_back(rule.name);
  }
  build_bodies(std::move(bodies), {}, budget, program, names);
}

}  // namespace quire::grammar
