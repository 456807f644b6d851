#include "core/grammar/mask/context.h"

namespace quire::grammar {

namespace {

constexpr std::size_t kTokensPerStep = 8;  // tokens recorded in the time of a step

}  // namespace

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
  allowed_ = std::make_shared<TokenSet>();
  follow_ = follow;
  leaving_.clear();
  known_.clear();
  const Stack::Mark mark = machine_.stack().mark();
  Thread begin = thread;
  begin.frame = kBaseFrame;
  if (thread.position == Position::kValue) {
    Walker walker(machine_, vocabulary_.trie(), levels_);
    walker.below(
        0, {begin}, 0, [&](std::uint32_t node) { allowed_->add(vocabulary_.trie().tokens_at(node)); },
        [&](std::uint32_t node, std::size_t depth, bool passed) { leave_value(node, depth, passed); });
  } else if (!(thread.position == Position::kString && cut_string(begin)) &&
             !(thread.position == Position::kKey && cut_key(begin))) {
    walk_lexer(begin);
  }
  machine_.stack().release(mark);
  if (context_->allowed == nullptr) {
    allowed_->seal(vocabulary_.num_mask_words());
    context_->allowed = std::move(allowed_);
  }
  for (auto& [label, entries] : leaving_)
    context_->exits.push_back(Exit{label, Trie(std::move(entries))});
  return std::move(context_);
}

const Profile& prepare_profile(ByteLexer& lexer, std::uint32_t state, const Lengths* lengths,
                               const TokenVocabulary& vocabulary) {
  if (lexer.contexts == nullptr) lexer.contexts = std::make_shared<LexerContexts>();
  // The same profile serves with and without bounds: with bounds it knows more.
  auto& known = lexer.contexts->profiles[lengths == nullptr ? state : state | 1u << 31];
  if (known == nullptr) {
    known = std::make_shared<Profile>(lexer, state, lengths, vocabulary);
    lexer.prepared.add(known->num_bytes());
  }
  return *known;
}

std::size_t Context::num_bytes() const {
  std::size_t sum = sizeof(Context) + sizeof(ContextKey) + allowed->num_bytes();
  for (const Exit& exit : exits)
    sum += sizeof(Exit) + exit.rest.num_bytes();
  for (const Resume& each : resumes)
    sum += sizeof(Resume) + each.path.size();
  return sum;
}

// Cuts a string's context from the profile of its state; impossible if its lengths have gaps, which profiles ignore.
bool ContextBuilder::cut_string(const Thread& thread) {
  const StringShape& string = machine_.string_of(thread);
  if (string.bounded() && !string.lengths->dense()) return false;
  const std::uint32_t room = !string.bounded() || string.max == kUnbounded ? kUnbounded : string.max - thread.count;
  const std::uint32_t least = string.min - std::min(string.min, thread.count);
  const Profile& known = prepare_profile(*string.lexer, thread.state, string.lengths.get(), vocabulary_);
  context_->allowed = nullptr;
  auto inside = std::make_shared<TokenSet>(*known.inside(room));
  for (const Profile::Closing& closing : known.closings()) {
    if (closing.length < least || closing.length > room) continue;
    if (closing.rest.empty()) {
      inside->add_sealed(closing.token);
    } else if (follow_.has(static_cast<std::uint8_t>(closing.rest.front()))) {
      leaving_[0].emplace_back(closing.rest, closing.token);
    }
  }
  // Tokens that stay inside the string or end with it are allowed; bytes after its end are tried against the stack.
  context_->allowed = std::move(inside);
  return true;
}

// Cuts the context of keys from the profile of plain strings, if any text is a key; only the class of finished keys is
// looked up.
bool ContextBuilder::cut_key(const Thread& thread) {
  const ObjectShape& shape = machine_.program().objects[thread.shape];
  if (shape.keys->inside(thread.state) || !shape.all_open || shape.any_text == nullptr) return false;
  const Profile& known = prepare_profile(*shape.any_text, shape.any_text->start(), nullptr, vocabulary_);
  const Dfa& dfa = shape.keys->dfa();
  std::vector<std::uint32_t> labels;
  for (const std::u32string& content : known.contents()) {
    std::uint32_t state = thread.state;
    for (const char32_t c : content)
      state = dfa.step(state, c);
    labels.push_back(dfa.accept[state]);
  }
  for (const Profile::Closing& closing : known.closings()) {
    if (labels[closing.content] != 0) leaving_[labels[closing.content] - 1].emplace_back(closing.rest, closing.token);
  }
  context_->allowed = known.inside(kUnbounded);
  return true;
}

// Whether the key can be continued regardless of the object's other keys.
bool ContextBuilder::endless(const ObjectShape& shape, std::uint32_t state) const {
  if (!shape.keys->inside(state)) return shape.reach[state].endless;
  bool result = false;
  shape.keys->for_each_target(state, [&](std::uint32_t target) { result = result || shape.reach[target].endless; });
  return result;
}

// Whether the bounds on the length can still be met, for lengths with gaps.
bool ContextBuilder::bounds_live(const StringShape& string, std::uint32_t state, std::uint32_t count) const {
  const std::uint32_t inside = string.lexer->inside(state) ? 1 : 0;
  bool live = false;
  string.lexer->for_each_target(state,
                                [&](std::uint32_t target) { live = live || string.live(target, count + inside); });
  return live;
}

// Calls on_live(node, thread, depth) for the nodes that the lexer reads; if it returns false, nodes below are skipped.
template <class OnLive>
void ContextBuilder::for_each_live(const Thread& thread, const OnLive& on_live) {
  struct Open {
    std::uint32_t end;
    std::uint32_t state;
    std::uint32_t count;
  };
  const Trie& trie = vocabulary_.trie();
  ByteLexer& lexer = lexer_of(thread);
  const bool is_string = thread.position == Position::kString;
  const StringShape* bounded =
      is_string && machine_.string_of(thread).bounded() ? &machine_.string_of(thread) : nullptr;
  std::vector<Open> open{{trie.size(), thread.state, thread.count}};
  if (!on_live(0, thread, 0)) return;
  Thread at = thread;
  for (std::uint32_t node = 1; node < trie.size();) {
    while (node >= open.back().end)
      open.pop_back();
    const std::uint32_t moved = lexer.step(open.back().state, trie[node].byte);
    at.state = moved & ~ByteLexer::kCompletes;
    at.count = open.back().count + ((moved & ByteLexer::kCompletes) != 0 ? 1 : 0);
    const bool is_dead = moved == 0 || (bounded != nullptr && !bounds_live(*bounded, at.state, at.count));
    if (is_dead || !on_live(node, at, open.size())) {
      node = trie[node].end;
      continue;
    }
    open.push_back({trie[node].end, at.state, at.count});
    ++node;
  }
}

void ContextBuilder::walk_lexer(const Thread& thread) {
  if (thread.position == Position::kRule) return walk_rule(thread);
  const Trie& trie = vocabulary_.trie();
  const ObjectShape* keys = thread.position == Position::kKey ? &machine_.program().objects[thread.shape] : nullptr;
  for_each_live(thread, [&](std::uint32_t node, const Thread& at, std::size_t depth) {
    if (node > 0 && keys != nullptr && !endless(*keys, at.state)) {
      const auto tokens = trie.tokens_below(node);
      context_->resumes.push_back(
          Resume{std::string(vocabulary_.bytes(TokenId{tokens.front()}).substr(0, depth)), node});
      return false;
    }
    if (node > 0) allowed_->add(trie.tokens_at(node));
    visit(node, at, depth);
    return true;
  });
}

// First allows tokens that the rule reads by itself: for them, its calls and returns need not be followed.
void ContextBuilder::walk_rule(const Thread& thread) {
  const Trie& trie = vocabulary_.trie();
  known_.assign(vocabulary_.num_mask_words(), 0);
  for_each_live(thread, [&](std::uint32_t node, const Thread&, std::size_t) {
    if (node > 0) allow(trie.tokens_at(node));
    return true;
  });
  for_each_live(thread, [&](std::uint32_t node, const Thread& at, std::size_t depth) {
    if (all_in(known_, trie.tokens_below(node))) return false;
    visit_rule(node, at.state, depth);
    return true;
  });
}

void ContextBuilder::allow(std::span<const std::int32_t> tokens) {
  for (const std::int32_t token : tokens) {
    std::uint32_t& word = known_[static_cast<std::size_t>(token) / 32];
    if ((word >> token % 32 & 1) != 0) continue;
    word |= 1u << token % 32;
    allowed_->add(std::span(&token, 1));
  }
}

std::uint32_t ContextBuilder::closing_quote(std::uint32_t node) const {
  const Trie& trie = vocabulary_.trie();
  for (std::uint32_t child = node + 1; child < trie[node].end; child = trie[child].end) {
    if (trie[child].byte == '"') return child;
  }
  return kNoIndex;
}

// Records the exits from the lexeme at a node reached inside it.
void ContextBuilder::visit(std::uint32_t node, const Thread& thread, std::size_t depth) {
  static const ByteSet kAfterKey(" \t\n\r:");
  ByteLexer& lexer = lexer_of(thread);
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
    allowed_->add(vocabulary_.trie().tokens_at(quote));
    leave(quote, depth + 1, 0, follow_);
    return;
  }
  for (const std::int32_t token : vocabulary_.trie().tokens_at(quote))
    leaving_[label - 1].emplace_back("", token);
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
    Walker walker(machine_, vocabulary_.trie(), levels_);
    walker.want_only([&](std::uint32_t at) { return !all_in(known_, vocabulary_.trie().tokens_below(at)); });
    walker.below(
        node, threads, depth, [&](std::uint32_t live) { allow(vocabulary_.trie().tokens_at(live)); },
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
  const auto tokens = vocabulary_.trie().tokens_below(node);
  machine_.allowance().spend(tokens.size() / kTokensPerStep);
  for (const std::int32_t token : tokens) {
    if (!known_.empty() && all_in(known_, std::span(&token, 1))) continue;
    leaving_[label].emplace_back(vocabulary_.bytes(TokenId{token}).substr(depth), token);
  }
}

// Tokens below the node continue after the lexeme if they begin with a byte of `follow`.
void ContextBuilder::leave(std::uint32_t node, std::size_t depth, std::uint32_t label, const ByteSet& follow) {
  if (&follow == &follow_ && follow == json_follow()) return leave_json(node, depth);
  const Trie& trie = vocabulary_.trie();
  for (std::uint32_t child = node + 1; child < trie[node].end; child = trie[child].end) {
    if (follow.has(trie[child].byte)) leave_subtree(child, depth, label);
  }
}

// Inside JSON only whitespace may precede the next comma or bracket; most tokens that begin with a space are words.
void ContextBuilder::leave_json(std::uint32_t node, std::size_t from) {
  static const ByteSet kSpaces(" \t\n\r");
  const Trie& trie = vocabulary_.trie();
  for (std::uint32_t child = node + 1; child < trie[node].end; child = trie[child].end) {
    if (kSpaces.has(trie[child].byte)) {
      for (const std::int32_t token : trie.tokens_at(child)) {
        leaving_[0].emplace_back(vocabulary_.bytes(TokenId{token}).substr(from), token);
      }
      leave_json(child, from);
    } else if (json_follow().has(trie[child].byte)) {
      leave_subtree(child, from, 0);
    }
  }
}

}  // namespace quire::grammar
