// The part of Machine that follows the rules of a grammar: calls and returns, shared per place of the text so that left
// recursion and ambiguity cost no more than the rules themselves (generalised LL parsing, Scott and Johnstone 2010).
#include <algorithm>

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

void Machine::enter_rule(std::uint32_t state, std::uint32_t frame, Threads& out) {
  const Thread thread{.position = Position::kRule, .state = state, .frame = frame};
  if (std::find(out.begin(), out.end(), thread) != out.end()) return;
  out.push_back(thread);
  enter_calls(state, frame, out);
  if (program_->rules->accept(state) != 0) finish_value(frame, out);
}

void Machine::enter_calls(std::uint32_t state, std::uint32_t frame, Threads& out) {
  const Dfa& dfa = program_->rules->dfa();
  if (dfa.calls.empty()) return;
  for (const CallEdge& edge : dfa.calls[state])
    call(edge, frame, out);
}

// Nothing can follow but the return: the caller's own return may then stand for it.
bool Machine::only_accepts(std::uint32_t state) const {
  const Dfa& dfa = program_->rules->dfa();
  return dfa.accept[state] != 0 && program_->rules->is_final(state) && dfa.calls[state].empty();
}

void Machine::call(const CallEdge& edge, std::uint32_t frame, Threads& out) {
  const Symbol& symbol = program_->symbols[edge.symbol];
  const auto enter = [&](std::uint32_t below) {
    if (!symbol.is_value) return enter_rule(symbol.index, below, out);
    // As at the start of a text, no whitespace stands before the value's first token.
    push(out, Thread{.position = Position::kValue, .spaces = kMaxSpaces, .shape = symbol.index, .frame = below});
  };
  if (only_accepts(edge.target)) return enter(frame);
  const auto found =
      std::find_if(called_.begin(), called_.end(), [&](const Called& c) { return c.symbol == edge.symbol; });
  const auto add_edge = [&](std::uint32_t callee) {
    stack_.edges.push_back({edge.target, frame, stack_.frames[callee].edges});
    stack_.frames[callee].edges = static_cast<std::uint32_t>(stack_.edges.size() - 1);
  };
  if (found == called_.end()) {
    const std::uint32_t callee = stack_.push(Frame{.kind = FrameKind::kRule});
    called_.push_back({edge.symbol, callee, false});
    add_edge(callee);
    return enter(callee);
  }
  for (std::uint32_t known = stack_.frames[found->frame].edges; known != kNoIndex; known = stack_.edges[known].next) {
    if (stack_.edges[known].state == edge.target && stack_.edges[known].parent == frame) return;
  }
  const bool returned = found->returned;
  add_edge(found->frame);
  if (returned) enter_rule(edge.target, frame, out);
}

}  // namespace quire::grammar
