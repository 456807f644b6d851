#include "core/grammar/mask/filler.h"

#include <algorithm>

#include "core/grammar/machine/lent.h"
#include "core/grammar/mask/walker.h"

namespace quire::grammar {

namespace {

constexpr std::uint32_t kFar = 1u << 30;

// Distance to a bound; all distances beyond a token's reach are equal.
std::uint32_t distance(std::uint32_t bound, std::uint32_t count, std::size_t reach) {
  if (bound == kUnbounded) return kFar;
  const std::uint32_t left = bound > count ? bound - count : 0;
  return left > reach ? kFar : left;
}

}  // namespace

void MaskFiller::set(Mask mask, std::span<const std::int32_t> tokens) {
  for (const std::int32_t token : tokens)
    mask[static_cast<std::size_t>(token) / 32] |= 1u << token % 32;
}

void MaskFiller::fill(const Threads& threads, Mask mask) {
  for (const Thread& thread : threads)
    fill_thread(thread, mask);
}

void MaskFiller::walk(const Trie& trie, std::uint32_t node, const Threads& threads, Mask mask) {
  Walker walker(machine_, trie, workspace_.levels);
  // Tokens that are already allowed need not be tried by other threads.
  walker.want_only([&](std::uint32_t at) { return !all_in(mask, trie.tokens_below(at)); });
  walker.below(
      node, threads, 0, [&](std::uint32_t live) { set(mask, trie.tokens_at(live)); },
      [](std::uint32_t, std::size_t, bool) {});
}

void MaskFiller::fill_direct(const Thread& thread, Mask mask) {
  Lent<Threads> threads(workspace_.beginning);
  threads->push_back(thread);
  walk(vocabulary_.trie(), 0, *threads, mask);
}

std::shared_ptr<const Context> MaskFiller::context_of(ByteLexer& lexer, const Thread& thread, const ContextKey& key) {
  if (lexer.contexts == nullptr) lexer.contexts = std::make_shared<LexerContexts>();
  return context(thread, key, lexer.contexts->known, lexer.prepared);
}

std::shared_ptr<const Context> MaskFiller::own_context(const Thread& thread, const ContextKey& key) {
  return context(thread, key, workspace_.known, workspace_.prepared);
}

std::shared_ptr<const Context> MaskFiller::context(const Thread& thread, const ContextKey& key, KnownContexts& known,
                                                   PreparedBytes& prepared) {
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  auto made = ContextBuilder(machine_, vocabulary_, workspace_.levels).build(thread, std::get<ByteSet>(key));
  known.emplace(key, made);
  prepared.add(made->num_bytes());
  return made;
}

// The bytes that may follow once the value on `frame` is finished; inside JSON a single set serves all.
ByteSet MaskFiller::follow_of(std::uint32_t frame) {
  const Stack::Mark mark = machine_.stack().mark();
  Lent<Threads> threads(workspace_.following);
  machine_.begin_step();
  machine_.finish_value(frame, *threads);
  ByteSet follow;
  for (const Thread& thread : *threads)
    machine_.first_bytes(thread, follow);
  machine_.stack().release(mark);
  return follow.within(json_follow()) ? json_follow() : follow;
}

void MaskFiller::fill_thread(const Thread& thread, Mask mask) {
  const Program& program = machine_.program();
  switch (thread.position) {
    case Position::kDone: return;
    case Position::kValue: return fill_value(thread, mask);
    case Position::kKey: return fill_key(thread, mask);
    case Position::kString: return fill_string(thread, mask);
    case Position::kBare: {
      if (program.nodes[thread.shape].bare_supply != nullptr) return fill_direct(thread, mask);
      ByteLexer& lexer = *program.nodes[thread.shape].bare;
      const ContextKey key{thread.position, thread.state, 0, 0, follow_of(thread.frame)};
      return apply(*context_of(lexer, thread, key), thread, mask);
    }
    case Position::kRule: {
      const ContextKey key{thread.position, thread.state, 0, 0, follow_of(thread.frame)};
      return apply(*own_context(thread, key), thread, mask);
    }
    default: return fill_direct(thread, mask);
  }
}

void MaskFiller::fill_string(const Thread& thread, Mask mask) {
  const StringShape& string = machine_.string_of(thread);
  if (string.supply != nullptr) {
    bool endless = false;
    string.lexer->for_each_target(thread.state,
                                  [&](std::uint32_t target) { endless = endless || (*string.supply)[target].endless; });
    if (!endless) return fill_direct(thread, mask);
  }
  std::uint32_t lo = 0;
  std::uint32_t hi = kFar;
  if (string.bounded()) {
    const bool dense = string.lengths->dense();
    lo = dense ? distance(string.min, thread.count, vocabulary_.longest())
               : string.min - std::min(string.min, thread.count);
    hi = dense ? distance(string.max, thread.count, vocabulary_.longest()) : string.max - thread.count;
  }
  const ContextKey key{thread.position, thread.state, lo, hi, follow_of(thread.frame)};
  const auto prepared = context_of(*string.lexer, thread, key);
  if (string.supply != nullptr) return fill_differing(thread, *prepared, mask);
  apply(*prepared, thread, mask);
}

// A text that must differ: the prepared mask without the tokens that would repeat an existing text.
void MaskFiller::fill_differing(const Thread& thread, const Context& prepared, Mask mask) {
  if (!extends_to_used(thread)) return apply(prepared, thread, mask);
  Lent<std::vector<std::uint32_t>> own(workspace_.mask);
  own->assign(mask.size(), 0);
  apply(prepared, thread, *own);
  forbid_used(0, thread, 0, *own);
  for (std::size_t i = 0; i < mask.size(); ++i)
    mask[i] |= (*own)[i];
}

ByteLexer& MaskFiller::lexer_of(const Thread& thread) const {
  return thread.position == Position::kKey ? *machine_.program().objects[thread.shape].keys
                                           : *machine_.string_of(thread).lexer;
}

void MaskFiller::fill_value(const Thread& thread, Mask mask) {
  // An opening of an item that must differ depends on the other items, so it cannot be prepared.
  const Frame& below = machine_.stack().frames[thread.frame];
  if (below.kind == FrameKind::kArray && machine_.program().arrays[below.shape].unique)
    return fill_direct(thread, mask);
  // The run of whitespace matters only if its limit is within the reach of a token.
  const std::uint32_t most = machine_.program().max_spaces;
  const std::uint32_t left = most - std::min<std::uint32_t>(most, thread.spaces);
  const bool is_far = left > vocabulary_.longest();
  Thread begin = thread;
  begin.spaces = is_far ? std::uint16_t{0} : static_cast<std::uint16_t>(left == 0 ? kMaxSpaces : most - left);
  const ContextKey key{thread.position, thread.shape, is_far ? 0 : 1 + left, 0, follow_of(thread.frame)};
  apply(*own_context(begin, key), thread, mask);
}

void MaskFiller::fill_key(const Thread& thread, Mask mask) {
  const Frame& frame = machine_.stack().frames[thread.frame];
  const ObjectShape& shape = machine_.program().objects[thread.shape];
  bool endless = false;
  shape.keys->for_each_target(thread.state,
                              [&](std::uint32_t target) { endless = endless || shape.reach[target].endless; });
  if (!endless || frame.count + frame.missing >= shape.max) return fill_direct(thread, mask);
  // Reach differs between shapes that share a lexer, so these contexts belong to the grammar.
  const ContextKey key{thread.position, thread.state, thread.shape, 0, ByteSet()};
  fill_differing(thread, *own_context(thread, key), mask);
}

void MaskFiller::apply(const Context& context, const Thread& thread, Mask mask) {
  context.allowed->apply(mask);
  Stack& stack = machine_.stack();
  const Stack::Mark mark = stack.mark();
  for (const Exit& exit : context.exits) {
    Lent<Threads> threads(workspace_.leaving);
    machine_.begin_step();
    // A text that must differ is given a text that none repeats; tokens that do repeat one are forbidden
    // afterwards.
    Thread unseen = thread;
    unseen.text = stack.extend_text(thread.text, kMaxCodePoint + 1);
    if (thread.position == Position::kKey) {
      machine_.finish_key(unseen, exit.label, *threads);
      if (!threads->empty()) set(mask, exit.rest.tokens_at(0));
    } else if (thread.position == Position::kString && machine_.string_of(thread).supply != nullptr) {
      machine_.finish_item(thread.frame, unseen.text, *threads);
    } else {
      machine_.finish_value(thread.frame, *threads);
    }
    if (!threads->empty()) walk(exit.rest, 0, *threads, mask);
    stack.release(mark);
  }
  for (const Resume& at : context.resumes) {
    resume(at, thread, mask);
    stack.release(mark);
  }
}

void MaskFiller::resume(const Resume& at, const Thread& thread, Mask mask) {
  Lent<Threads> threads(workspace_.resuming);
  threads->push_back(thread);
  if (!machine_.read(at.path, *threads)) return;
  set(mask, vocabulary_.trie().tokens_at(at.node));
  walk(vocabulary_.trie(), at.node, *threads, mask);
}

// Whether the object has a key that begins with the text read of this one.
bool MaskFiller::extends_to_used(const Thread& thread) {
  const Stack& stack = machine_.stack();
  const bool inside = lexer_of(thread).inside(thread.state);
  const std::uint32_t prefix = inside ? thread.count : thread.text;
  for (std::uint32_t entry = stack.frames[thread.frame].used; entry != kNoIndex; entry = stack.used[entry].next) {
    if (stack.text_starts_with(stack.used[entry].text, prefix)) return true;
  }
  return false;
}

// Clears the tokens that would repeat a key of the object.
void MaskFiller::forbid_used(std::uint32_t node, const Thread& thread, std::size_t depth, Mask mask) {
  while (workspace_.forbidding.size() <= depth)
    workspace_.forbidding.emplace_back();
  Threads& next = workspace_.forbidding[depth];
  const Trie& trie = vocabulary_.trie();
  ByteLexer& lexer = lexer_of(thread);
  for (std::uint32_t child = node + 1; child < trie[node].end; child = trie[child].end) {
    if (trie[child].byte == '"' && !lexer.inside(thread.state)) {
      if (lexer.accept(thread.state) == 0 ||
          !machine_.distinct().used(machine_.stack().frames[thread.frame], thread.text))
        continue;
      for (const std::int32_t token : trie.tokens_below(child))
        mask[static_cast<std::size_t>(token) / 32] &= ~(1u << token % 32);
      continue;
    }
    const Stack::Mark mark = machine_.stack().mark();
    next.clear();
    machine_.begin_step();
    machine_.step_thread(thread, trie[child].byte, next);
    if (!next.empty() && extends_to_used(next.front())) forbid_used(child, Thread(next.front()), depth + 1, mask);
    machine_.stack().release(mark);
  }
}

}  // namespace quire::grammar
