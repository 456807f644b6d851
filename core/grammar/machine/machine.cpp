#include "core/grammar/machine/machine.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/grammar/machine/lent.h"

namespace quire::grammar {

namespace {

constexpr std::size_t kComparedAtOnce = 16;  // threads compared in the time of a step

bool is_space(std::uint8_t byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

bool takes_spaces(Position position) {
  return position != Position::kString && position != Position::kBare && position != Position::kKey &&
         position != Position::kRule && position != Position::kDone;
}

}  // namespace

void Machine::push(Threads& out, const Thread& thread) {
  allowance_.spend(1 + out.size() / kComparedAtOnce);
  if (std::find(out.begin(), out.end(), thread) != out.end()) return;
  if (counts_conditions(thread, *program_, stack_)) {
    const auto surpasses = [this](const Thread& a, const Thread& b) { return meets_as_much(a, b, *program_, stack_); };
    if (std::any_of(out.begin(), out.end(), [&](const Thread& known) { return surpasses(known, thread); })) return;
    std::erase_if(out, [&](const Thread& known) { return surpasses(thread, known); });
  }
  out.push_back(thread);
}

Threads Machine::start() {
  Threads threads;
  begin_step();
  const Symbol& symbol = program_->start;
  if (symbol.is_value) {
    // No whitespace may precede the first token: its run is used up.
    push(threads,
         Thread{.position = Position::kValue, .spaces = kMaxSpaces, .shape = symbol.index, .frame = kRootFrame});
  } else {
    enter_rule(symbol.index, kRootFrame, threads);
    drop_ended(threads);
  }
  return threads;
}

bool Machine::step(const Threads& from, std::uint8_t byte, Threads& out) {
  begin_step();
  Lent<Threads> items(items_);
  for (const Thread& thread : from) {
    if (thread.position == Position::kArrayFirst && byte != ']' && !is_space(byte)) {
      begin_items(thread.frame, *items);
    } else {
      step_thread(thread, byte, out);
    }
  }
  share_values(*items, *program_, stack_);
  for (const Thread& item : *items)
    step_thread(item, byte, out);
  share_values(out, *program_, stack_);
  if (program_->rules != nullptr) drop_ended(out);
  return !out.empty();
}

bool Machine::read(std::string_view bytes, Threads& threads) {
  Lent<Threads> next(next_);
  for (std::size_t i = 0; i < bytes.size() && !threads.empty(); ++i) {
    next->clear();
    step(threads, static_cast<std::uint8_t>(bytes[i]), *next);
    threads.swap(*next);
  }
  return !threads.empty();
}

// Rules that have returned and read nothing more are kept only to prevent entering them twice.
void Machine::drop_ended(Threads& threads) const {
  std::erase_if(threads, [this](const Thread& thread) {
    return thread.position == Position::kRule && program_->rules->is_final(thread.state);
  });
}

bool Machine::complete(const Threads& threads) {
  const Stack::Mark mark = stack_.mark();
  begin_step();
  Lent<Threads> ended(ended_);
  for (const Thread& thread : threads) {
    if (thread.position == Position::kDone) return true;
    if (thread.position != Position::kBare) continue;
    if (program_->nodes[thread.shape].bare->accept(thread.state) != 0) finish_value(thread.frame, *ended);
  }
  stack_.release(mark);
  return std::any_of(ended->begin(), ended->end(),
                     [](const Thread& thread) { return thread.position == Position::kDone; });
}

bool Machine::only_done(const Threads& threads) {
  return std::all_of(threads.begin(), threads.end(),
                     [](const Thread& thread) { return thread.position == Position::kDone; });
}

void Machine::step_thread(const Thread& thread, std::uint8_t byte, Threads& out) {
  allowance_.spend(1);
  if (takes_spaces(thread.position) && is_space(byte)) {
    if (thread.spaces >= program_->max_spaces) return;
    Thread waiting = thread;
    ++waiting.spaces;
    push(out, waiting);
    return;
  }
  switch (thread.position) {
    case Position::kDone: return;
    case Position::kValue: return begin_value(thread.shape, thread.frame, byte, out);
    case Position::kString: return step_string(thread, byte, out);
    case Position::kBare: return step_bare(thread, byte, out);
    case Position::kKey: return step_key(thread, byte, out);
    case Position::kRule: return step_rule(thread, byte, out);
    case Position::kObjectFirst:
    case Position::kAfterProperty:
    case Position::kNextKey:
    case Position::kColon: return step_object(thread, byte, out);
    case Position::kArrayFirst:
    case Position::kAfterItem: return step_array(thread, byte, out);
  }
}

void Machine::first_bytes(const Thread& thread, ByteSet& set) {
  const auto add_row = [&set](ByteLexer& lexer, std::uint32_t state) { set.add(lexer.live_bytes(state)); };
  const auto add_all = [&set](std::string_view bytes) {
    for (const char byte : bytes)
      set.add(static_cast<std::uint8_t>(byte));
  };
  if (takes_spaces(thread.position) && thread.spaces < program_->max_spaces) add_all(" \t\n\r");
  switch (thread.position) {
    case Position::kDone: return;
    case Position::kValue: {
      const ValueNode& node = program_->nodes[thread.shape];
      if (!node.strings.empty()) set.add('"');
      if (!node.objects.empty()) set.add('{');
      if (!node.arrays.empty()) set.add('[');
      if (node.bare != nullptr) add_row(*node.bare, node.bare->start());
      return;
    }
    case Position::kString: set.add('"'); return add_row(*string_of(thread).lexer, thread.state);
    case Position::kKey: set.add('"'); return add_row(*program_->objects[thread.shape].keys, thread.state);
    case Position::kBare: {
      ByteLexer& lexer = *program_->nodes[thread.shape].bare;
      add_row(lexer, thread.state);
      if (lexer.accept(thread.state) == 0) return;
      if (program_->rules != nullptr) set.words.fill(~std::uint64_t{0});
      return add_all(" \t\n\r,]}");
    }
    case Position::kRule: return add_row(*program_->rules, thread.state);
    case Position::kObjectFirst: return add_all("\"}");
    case Position::kNextKey: return add_all("\"");
    case Position::kColon: return add_all(":");
    case Position::kAfterProperty: return add_all(",}");
    case Position::kAfterItem: return add_all(",]");
    case Position::kArrayFirst: set.words.fill(~std::uint64_t{0}); return;
  }
}

void Machine::begin_value(std::uint32_t node_index, std::uint32_t frame, std::uint8_t byte, Threads& out) {
  const ValueNode& node = program_->nodes[node_index];
  if (byte == '"') {
    for (std::size_t i = 0; i < node.strings.size(); ++i) {
      Thread begun{.position = Position::kString,
                   .string = static_cast<std::uint16_t>(i),
                   .shape = node_index,
                   .state = node.strings[i].lexer->start(),
                   .frame = frame};
      // A string's text begins with a quote, so that it differs from a bare value of the same spelling.
      const Supply& supply = node.strings[i].supply;
      if (supply != nullptr) begun.text = stack_.extend_text(kEmptyText, '"');
      if (supply == nullptr || distinct().item_live(begun, *node.strings[i].lexer, supply)) push(out, begun);
    }
  } else if (byte == '{') {
    for (const std::uint32_t shape : node.objects) {
      const ObjectShape& object = program_->objects[shape];
      const std::uint32_t words = stack_.push_words(object.num_words());
      const std::uint32_t opened = stack_.push(Frame{
          .kind = FrameKind::kObject, .parent = frame, .shape = shape, .words = words, .missing = object.num_required});
      push(out, Thread{.position = Position::kObjectFirst, .frame = opened});
    }
  } else if (byte == '[') {
    for (const std::uint32_t shape : node.arrays) {
      const std::uint32_t words = stack_.push_words(program_->arrays[shape].contains.size());
      const std::uint32_t opened =
          stack_.push(Frame{.kind = FrameKind::kArray, .parent = frame, .shape = shape, .words = words});
      push(out, Thread{.position = Position::kArrayFirst, .frame = opened});
    }
  } else if (node.bare != nullptr) {
    step_bare(Thread{.position = Position::kBare, .shape = node_index, .state = node.bare->start(), .frame = frame},
              byte, out);
  }
}

void Machine::step_string(const Thread& thread, std::uint8_t byte, Threads& out) {
  const StringShape& string = string_of(thread);
  if (byte == '"' && !string.lexer->inside(thread.state)) {
    if (string.lexer->accept(thread.state) == 0) return;
    if (string.supply != nullptr) return finish_item(thread.frame, thread.text, out);
    if (thread.count >= string.min && thread.count <= string.max) finish_value(thread.frame, out);
    return;
  }
  const std::uint32_t moved = string.lexer->step(thread.state, byte);
  if (moved == 0) return;
  Thread next = thread;
  next.state = moved & ~ByteLexer::kCompletes;
  if (string.supply != nullptr) {
    distinct().extend(next, byte, (moved & ByteLexer::kCompletes) != 0, string.lexer->inside(thread.state));
    if (!distinct().item_live(next, *string.lexer, string.supply)) return;
  } else if (string.bounded()) {
    if ((moved & ByteLexer::kCompletes) != 0) ++next.count;
    const bool inside = string.lexer->code_state(next.state) == ByteLexer::kInside;
    bool live = false;
    string.lexer->for_each_target(
        next.state, [&](std::uint32_t target) { live = live || string.live(target, next.count + (inside ? 1 : 0)); });
    if (!live) return;
  }
  push(out, next);
}

void Machine::step_bare(const Thread& thread, std::uint8_t byte, Threads& out) {
  ByteLexer& lexer = *program_->nodes[thread.shape].bare;
  const std::uint32_t moved = lexer.step(thread.state, byte) & ~ByteLexer::kCompletes;
  if (moved != 0) {
    Thread next = thread;
    next.state = moved;
    const Supply& supply = program_->nodes[thread.shape].bare_supply;
    if (supply != nullptr) next.text = stack_.extend_text(thread.text, byte);
    if (lexer.accept(moved) != 0 && lexer.is_final(moved)) {
      finish_bare(next, out);
    } else if (supply == nullptr || distinct().item_live(next, lexer, supply)) {
      push(out, next);
    }
  }
  // A number ends with the first byte that is not part of it.
  if (lexer.accept(thread.state) == 0 ||
      !(is_space(byte) || byte == ',' || byte == '}' || byte == ']' || program_->rules != nullptr)) {
    return;
  }
  // The value ended before this byte: calls made there are separate from calls made after it.
  Lent<std::vector<Called>> called(other_called_);
  Lent<KeySet> entered(other_entered_);
  Lent<Threads> ended(ended_);
  std::swap(called_, *called);
  std::swap(entered_, *entered);
  const bool reached = std::exchange(base_reached_, false);
  finish_bare(thread, *ended);
  std::swap(called_, *called);
  std::swap(entered_, *entered);
  base_passed_ = std::exchange(base_reached_, reached) || base_passed_;
  for (const Thread& after : *ended)
    step_thread(after, byte, out);
}

void Machine::finish_value(std::uint32_t frame, Threads& out) {
  switch (stack_.frames[frame].kind) {
    case FrameKind::kRoot: push(out, Thread{.position = Position::kDone, .frame = frame}); return;
    case FrameKind::kBase: base_reached_ = true; return;
    case FrameKind::kArray: push(out, Thread{.position = Position::kAfterItem, .frame = frame}); return;
    case FrameKind::kObject: push(out, Thread{.position = Position::kAfterProperty, .frame = frame}); return;
    case FrameKind::kShared: break;
  }
  for (Called& called : called_) {
    if (called.frame == frame) called.returned = true;
  }
  for (std::uint32_t edge = stack_.frames[frame].edges; edge != kNoIndex;) {
    allowance_.spend(1);
    const ReturnEdge back = stack_.edges[edge];
    if (back.state == kNoIndex) {
      finish_value(back.parent, out);
    } else {
      enter_rule(back.state, back.parent, out);
    }
    edge = back.next;
  }
}

// --- rules: calls and returns are shared per place of the text, so that left recursion and ambiguity cost no more than
// the rules themselves (generalised LL parsing, Scott and Johnstone 2010).

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
