#include "core/grammar/machine/distinct_texts.h"

#include <string>

namespace quire::grammar {

void DistinctTexts::use(Frame& frame, std::uint32_t text) {
  stack_.used.push_back(UsedText{text, frame.used, stack_.texts[text].hash});
  frame.used = static_cast<std::uint32_t>(stack_.used.size() - 1);
}

bool DistinctTexts::used(const Frame& frame, std::uint32_t text) const {
  for (std::uint32_t entry = frame.used; entry != kNoIndex; entry = stack_.used[entry].next) {
    if (stack_.used[entry].hash == stack_.texts[text].hash) return true;
  }
  return false;
}

// Whether a key described by `reach` is still unused; for few unnamed keys this is known only if `text` is exactly the
// text read. A full object takes only the keys that it still needs.
bool DistinctTexts::reach_live(const Frame& frame, const KeyReach& reach, std::uint32_t text, bool exact) const {
  const ObjectShape& shape = program_.objects[frame.shape];
  if (frame.count + frame.missing > shape.max) return false;
  const bool tight = frame.count + frame.missing == shape.max;
  if (!tight && reach.endless) return true;
  for (std::uint32_t name = reach.first_named; name < reach.last_named; ++name) {
    if (!bit(&stack_.words[frame.words], name) && (!tight || bit(shape.required.data(), name))) return true;
  }
  return !tight && exact && reach.num_finite > num_taken(frame, text);
}

// Number of used texts that begin with `prefix`.
std::uint64_t DistinctTexts::num_taken(const Frame& frame, std::uint32_t prefix) const {
  std::uint64_t taken = 0;
  for (std::uint32_t entry = frame.used; entry != kNoIndex; entry = stack_.used[entry].next) {
    if (stack_.text_starts_with(stack_.used[entry].text, prefix)) ++taken;
  }
  return taken;
}

// Whether `live` holds for some completion of the unfinished code point. This is asked only if few texts are left, so
// the search is short.
template <class Live>
bool DistinctTexts::some_completion(const Thread& thread, ByteLexer& lexer, const Live& live) {
  const Stack::Mark mark = stack_.mark();
  bool found = false;
  for (std::uint32_t byte = 0; byte < 256 && !found; ++byte) {
    const std::uint32_t moved = lexer.step(thread.state, static_cast<std::uint8_t>(byte));
    if (moved == 0) continue;
    const bool completes = (moved & ByteLexer::kCompletes) != 0;
    Thread next = thread;
    next.state = moved & ~ByteLexer::kCompletes;
    extend(next, static_cast<std::uint8_t>(byte), completes, true);
    found = completes ? live(next) : some_completion(next, lexer, live);
    stack_.release(mark);
  }
  return found;
}

void DistinctTexts::extend(Thread& thread, std::uint8_t byte, bool completes, bool was_inside) {
  if (!was_inside) thread.count = thread.text;
  if (!completes || !was_inside) {
    thread.text = stack_.extend_text(thread.text, byte);
    return;
  }
  const std::string bytes = stack_.bytes_between(thread.count, thread.text) + static_cast<char>(byte);
  thread.text = stack_.extend_text(thread.count, decode_json_character(bytes));
}

bool DistinctTexts::item_live(const Thread& thread, ByteLexer& lexer, const Supply& supply) {
  const bool inside = lexer.inside(thread.state);
  bool live = false;
  bool few = false;
  lexer.for_each_target(thread.state, [&](std::uint32_t target) {
    const KeyReach& reach = (*supply)[target];
    few = few || reach.num_finite > 0;
    live = live || reach.endless || (!inside && reach.num_finite > num_taken(stack_.frames[thread.frame], thread.text));
  });
  if (live || !inside || !few) return live;
  return some_completion(thread, lexer, [&](const Thread& whole) { return item_live(whole, lexer, supply); });
}

bool DistinctTexts::key_live(const Thread& thread) {
  const ObjectShape& shape = program_.objects[thread.shape];
  const Frame& frame = stack_.frames[thread.frame];
  const bool inside = shape.keys->inside(thread.state);
  const bool takes_unnamed = frame.count + frame.missing < shape.max;
  bool live = false;
  bool few = false;
  shape.keys->for_each_target(thread.state, [&](std::uint32_t target) {
    if (target == 0) return;
    few = few || (takes_unnamed && shape.reach[target].num_finite > 0);
    live = live || reach_live(frame, shape.reach[target], thread.text, !inside);
  });
  if (live || !inside || !few) return live;
  return some_completion(thread, *shape.keys, [&](const Thread& whole) { return key_live(whole); });
}

}  // namespace quire::grammar
