// Machine's methods that follow the rules of a grammar: calls and returns, shared per place of the text so that left
// recursion and ambiguity cost no more than the rules themselves (generalised LL parsing, Scott and Johnstone 2010).
#include <algorithm>
#include <utility>

#include "core/grammar/machine/machine.h"

namespace quire::grammar {

void Machine::step_rule(const Thread& thread, std::uint8_t byte, Threads& out) {
  const std::uint32_t moved = program_->rules->step(thread.state, byte);
  if (moved == 0) return;
  if ((moved & ByteLexer::kCompletes) != 0) {
    enter_rule(moved & ~ByteLexer::kCompletes, thread.frame, out);
    return;
  }
  Thread next = thread;
  next.state = moved;
  push(out, next);
}

// Ambiguous rules enter thousands of places in a step; comparing each with all others would take seconds.
bool Machine::enters_anew(const Thread& thread, const Threads& out) {
  constexpr std::size_t kMany = 32;
  if (out.size() < kMany) return std::find(out.begin(), out.end(), thread) == out.end();
  const auto key = [](const Thread& t) { return std::uint64_t{t.state} << 32 | t.frame; };
  if (entered_.empty()) {
    for (const Thread& known : out) {
      if (known.position == Position::kRule) entered_.insert(key(known));
    }
  }
  return entered_.insert(key(thread));
}

// A loop, not recursion: the grammar decides how deep calls lead to one another.
void Machine::enter_rule(std::uint32_t state, std::uint32_t frame, Threads& out) {
  const Thread thread{.position = Position::kRule, .state = state, .frame = frame};
  if (!enters_anew(thread, out)) return;
  out.push_back(thread);
  waiting_.push_back(thread);
  if (std::exchange(entering_, true)) return;
  while (!waiting_.empty()) {
    const Thread next = waiting_.back();
    waiting_.pop_back();
    allowance_.spend(1 + called_.size());
    enter_calls(next.state, next.frame, out);
    if (program_->rules->accept(next.state) != 0) finish_value(next.frame, out);
  }
  entering_ = false;
}

void Machine::enter_calls(std::uint32_t state, std::uint32_t frame, Threads& out) {
  const Dfa& dfa = program_->rules->dfa();
  if (dfa.calls.empty()) return;
  for (const CallEdge& edge : dfa.calls[state])
    call(edge, frame, out);
}

// Only the return can follow: the caller's own return may then replace it.
bool Machine::only_accepts(std::uint32_t state) const {
  const Dfa& dfa = program_->rules->dfa();
  return dfa.accept[state] != 0 && program_->rules->is_final(state) && dfa.calls[state].empty();
}

void Machine::call(const CallEdge& edge, std::uint32_t frame, Threads& out) {
  const Symbol& symbol = program_->symbols[edge.symbol];
  const auto enter = [&](std::uint32_t below) {
    if (!symbol.is_value) return enter_rule(symbol.index, below, out);
    // No whitespace may precede the value's first token, just as at the start of a text.
    push(out, Thread{.position = Position::kValue, .spaces = kMaxSpaces, .shape = symbol.index, .frame = below});
  };
  if (only_accepts(edge.target)) return enter(frame);
  const auto found =
      std::find_if(called_.begin(), called_.end(), [&](const Called& c) { return c.symbol == edge.symbol; });
  if (found == called_.end()) {
    const std::uint32_t callee = stack_.push(Frame{.kind = FrameKind::kShared, .shape = edge.symbol});
    called_.push_back({edge.symbol, callee, false});
    stack_.add_edge(callee, edge.target, frame);
    return enter(callee);
  }
  const bool returned = found->returned;
  stack_.add_edge(found->frame, edge.target, frame);
  if (returned) enter_rule(edge.target, frame, out);
}

}  // namespace quire::grammar
