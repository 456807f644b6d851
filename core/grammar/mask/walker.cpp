#include "core/grammar/mask/walker.h"

namespace quire::grammar {

WalkLevel& Walker::level(std::size_t index) {
  while (levels_.size() <= index)
    levels_.emplace_back();
  return levels_[index];
}

void Walker::below(std::uint32_t node, const Threads& threads, std::size_t depth, const OnLive& on_live,
                   const OnBase& on_base) {
  on_live_ = &on_live;
  on_base_ = &on_base;
  machine_.take_base_reached();
  machine_.take_base_passed();
  level(0).threads = threads;
  descend(node, 0, depth);
}

void Walker::arrive(std::uint32_t node, bool alive, std::size_t at, std::size_t depth) {
  const bool base = machine_.take_base_reached();
  if (base) (*on_base_)(node, depth, false);
  if (machine_.take_base_passed()) (*on_base_)(node, depth - 1, true);
  if (base || alive) (*on_live_)(node);
  if (alive && trie_[node].end != node + 1) descend(node, at, depth);
}

void Walker::descend(std::uint32_t node, std::size_t at, std::size_t depth) {
  const Threads& threads = level(at).threads;
  if (threads.size() == 1 && threads[0].position == Position::kString && machine_.string_of(threads[0]).plain()) {
    return string_below(node, Thread(threads[0]), at, depth);
  }
  ByteSet first;
  for (const Thread& thread : threads)
    machine_.first_bytes(thread, first);
  Threads& next = level(at + 1).threads;
  for (std::uint32_t child = node + 1; child < trie_[node].end; child = trie_[child].end) {
    const std::uint8_t byte = trie_[child].byte;
    if (!first.has(byte) || (wanted_ && !wanted_(child))) continue;
    const Stack::Mark mark = machine_.stack().mark();
    next.clear();
    const bool alive = machine_.step(threads, byte, next);
    arrive(child, alive, at + 1, depth + 1);
    machine_.stack().release(mark);
  }
}

// Inside a string only its lexer is needed: most of a large trie is read here.
void Walker::string_below(std::uint32_t node, const Thread& thread, std::size_t at, std::size_t depth) {
  ByteLexer& lexer = *machine_.string_of(thread).lexer;
  auto& open = level(at).open;
  open.assign(1, {node, thread.state});
  for (std::uint32_t child = node + 1; child < trie_[node].end;) {
    while (child >= trie_[open.back().first].end)
      open.pop_back();
    const std::uint32_t state = open.back().second;
    const std::uint8_t byte = trie_[child].byte;
    if (byte == '"' && !lexer.inside(state)) {
      if (lexer.accept(state) != 0) {
        const Stack::Mark mark = machine_.stack().mark();
        Threads& next = level(at + 1).threads;
        next.clear();
        machine_.begin_step();
        machine_.finish_value(thread.frame, next);
        arrive(child, !next.empty(), at + 1, depth + open.size());
        machine_.stack().release(mark);
      }
      child = trie_[child].end;
      continue;
    }
    const std::uint32_t moved = lexer.step(state, byte) & ~ByteLexer::kCompletes;
    if (moved == 0) {
      child = trie_[child].end;
      continue;
    }
    (*on_live_)(child);
    open.emplace_back(child, moved);
    ++child;
  }
}

}  // namespace quire::grammar
