#include "core/grammar/mask/context.h"

#include "core/grammar/mask/walker.h"

namespace quire::grammar {

void TokenSet::seal(std::size_t num_words) {
  if (ids_.size() < num_words) return;
  words_.assign(num_words, 0);
  for (const std::int32_t id : ids_) words_[static_cast<std::size_t>(id) / 32] |= 1u << id % 32;
  ids_ = {};
}

void TokenSet::apply(std::span<std::uint32_t> mask) const {
  for (std::size_t i = 0; i < words_.size(); ++i) mask[i] |= words_[i];
  for (const std::int32_t id : ids_) mask[static_cast<std::size_t>(id) / 32] |= 1u << id % 32;
}

const ByteSet& json_follow() {
  static const ByteSet kFollow(" \t\n\r,]}");
  return kFollow;
}

ByteLexer& ContextBuilder::lexer_of(const Thread& thread) const {
  const Program& program = machine_.program();
  switch (thread.position) {
    case Position::kString: return *machine_.string_of(thread).lexer;
    case Position::kKey: return *program.objects[thread.shape].keys;
    case Position::kBare: return *program.nodes[thread.shape].bare;
    default: return *program.rules;
  }
}

std::shared_ptr<const Context> ContextBuilder::build(const Thread& thread, const ByteSet& follow) {
  context_ = std::make_shared<Context>();
  follow_ = follow;
  leaving_.clear();
  const Stack::Mark mark = machine_.stack().mark();
  Thread begin = thread;
  begin.frame = kBaseFrame;
  if (thread.position == Position::kValue) {
    Walker walker(machine_, vocabulary_.trie());
    walker.below(
        0, {begin}, 0, [&](std::uint32_t node) { context_->allowed.add(vocabulary_.trie().tokens_at(node)); },
        [&](std::uint32_t node, std::size_t depth, bool passed) { leave_value(node, depth, passed); });
  } else {
    walk_lexer(begin);
  }
  machine_.stack().release(mark);
  context_->allowed.seal(vocabulary_.num_mask_words());
  for (auto& [label, entries] : leaving_) context_->exits.push_back(Exit{label, Trie(std::move(entries))});
  return std::move(context_);
}

// Whether the key can be continued whatever the object holds.
bool ContextBuilder::endless(const Thread& thread) const {
  const ObjectShape& shape = machine_.program().objects[thread.shape];
  bool result = false;
  shape.keys->for_each_target(thread.state, [&](std::uint32_t target) { result = result || shape.reach[target].endless; });
  return result;
}

bool ContextBuilder::advance(Thread& thread, std::uint8_t byte) {
  ByteLexer& lexer = lexer_of(thread);
  const std::uint32_t moved = lexer.step(thread.state, byte);
  if (moved == 0) return false;
  thread.state = moved & ~ByteLexer::kCompletes;
  if (thread.position != Position::kString || !machine_.string_of(thread).bounded()) return true;
  const StringShape& string = machine_.string_of(thread);
  if ((moved & ByteLexer::kCompletes) != 0) ++thread.count;
  const std::uint32_t inside = lexer.code_state(thread.state) == ByteLexer::kInside ? 1 : 0;
  bool live = false;
  lexer.for_each_target(thread.state, [&](std::uint32_t target) { live = live || string.live(target, thread.count + inside); });
  return live;
}

void ContextBuilder::walk_lexer(const Thread& thread) {
  const Trie& trie = vocabulary_.trie();
  std::vector<std::pair<std::uint32_t, Thread>> open{{0, thread}};
  std::string path;
  visit(0, thread, 0);
  const bool is_key = thread.position == Position::kKey;
  for (std::uint32_t node = 1; node < trie.size();) {
    while (node >= trie[open.back().first].end) open.pop_back();
    path.resize(open.size() - 1);
    Thread next = open.back().second;
    if (!advance(next, trie[node].byte)) {
      node = trie[node].end;
      continue;
    }
    path.push_back(static_cast<char>(trie[node].byte));
    if (is_key && !endless(next)) {
      context_->resumes.push_back(Resume{path, node});
      node = trie[node].end;
      continue;
    }
    context_->allowed.add(trie.tokens_at(node));
    visit(node, next, open.size());
    open.emplace_back(node, next);
    ++node;
  }
}

std::uint32_t ContextBuilder::closing_quote(std::uint32_t node) const {
  const Trie& trie = vocabulary_.trie();
  for (std::uint32_t child = node + 1; child < trie[node].end; child = trie[child].end) {
    if (trie[child].byte == '"') return child;
  }
  return kNoIndex;
}

// Notes the ways out of the lexeme at a node that was reached inside it.
void ContextBuilder::visit(std::uint32_t node, const Thread& thread, std::size_t depth) {
  static const ByteSet kAfterKey(" \t\n\r:");
  ByteLexer& lexer = lexer_of(thread);
  if (thread.position == Position::kRule) return visit_rule(node, thread.state, depth);
  const std::uint32_t label = lexer.accept(thread.state);
  if (label == 0) return;
  if (thread.position == Position::kBare) return leave(node, depth, 0, follow_);
  if (thread.position == Position::kString) {
    const StringShape& string = machine_.string_of(thread);
    if (thread.count < string.min || thread.count > string.max) return;
  }
  const std::uint32_t quote = closing_quote(node);
  if (quote == kNoIndex) return;
  if (thread.position == Position::kString) {
    context_->allowed.add(vocabulary_.trie().tokens_at(quote));
    leave(quote, depth + 1, 0, follow_);
    return;
  }
  for (const std::int32_t token : vocabulary_.trie().tokens_at(quote)) leaving_[label - 1].emplace_back("", token);
  leave(quote, depth + 1, label - 1, kAfterKey);
}

void ContextBuilder::visit_rule(std::uint32_t node, std::uint32_t state, std::size_t depth) {
  const Program& program = machine_.program();
  if (program.rules->code_state(state) == ByteLexer::kInside) return;
  bool ends = program.rules->accept(state) != 0;
  if (!program.rules->dfa().calls.empty() && !program.rules->dfa().calls[state].empty()) {
    const Stack::Mark mark = machine_.stack().mark();
    Threads threads;
    machine_.begin_step();
    machine_.take_base_reached();
    machine_.enter_calls(state, kBaseFrame, threads);
    ends = machine_.take_base_reached() || ends;
    Walker walker(machine_, vocabulary_.trie());
    walker.below(
        node, threads, depth, [&](std::uint32_t live) { context_->allowed.add(vocabulary_.trie().tokens_at(live)); },
        [&](std::uint32_t done, std::size_t at, bool passed) { leave_value(done, at, passed); });
    machine_.stack().release(mark);
  }
  if (ends) leave(node, depth, 0, follow_);
}

void ContextBuilder::leave_value(std::uint32_t node, std::size_t depth, bool passed) {
  if (!passed) return leave(node, depth, 0, follow_);
  if (follow_.has(vocabulary_.trie()[node].byte)) leave_subtree(node, depth, 0);
}

void ContextBuilder::leave_subtree(std::uint32_t node, std::size_t depth, std::uint32_t label) {
  for (const std::int32_t token : vocabulary_.trie().tokens_below(node)) {
    leaving_[label].emplace_back(vocabulary_.bytes(TokenId{token}).substr(depth), token);
  }
}

// Tokens below the node go on after the lexeme, where they begin with a byte of `follow`.
void ContextBuilder::leave(std::uint32_t node, std::size_t depth, std::uint32_t label, const ByteSet& follow) {
  const Trie& trie = vocabulary_.trie();
  for (std::uint32_t child = node + 1; child < trie[node].end; child = trie[child].end) {
    if (follow.has(trie[child].byte)) leave_subtree(child, depth, label);
  }
}

}  // namespace quire::grammar
