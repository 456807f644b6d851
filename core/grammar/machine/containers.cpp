// Machine's methods that read objects and arrays.
#include <algorithm>
#include <bit>
#include <string>

#include "core/grammar/machine/decimal.h"
#include "core/grammar/machine/lent.h"
#include "core/grammar/machine/machine.h"

namespace quire::grammar {

namespace {

bool bit(const std::uint64_t* words, std::uint32_t index) {
  return (words[index / 64] >> index % 64 & 1) != 0;
}

}  // namespace

bool Machine::can_close_object(const Frame& frame) const {
  const ObjectShape& shape = program_->objects[frame.shape];
  if (frame.missing > 0 || frame.count < shape.min) return false;
  if (shape.num_marks == 0) return true;
  const std::uint64_t marks = stack_.words[frame.words + shape.num_named / 64 + 1];
  return static_cast<std::uint32_t>(std::popcount(marks)) == shape.num_marks;
}

bool Machine::used(const Frame& frame, std::uint32_t text) const {
  for (std::uint32_t entry = frame.used; entry != kNoIndex; entry = stack_.used[entry].next) {
    if (stack_.used[entry].hash == stack_.texts[text].hash) return true;
  }
  return false;
}

// Whether a key described by `reach` is still unused; for few unnamed keys this is known only if `text` is exactly the
// text read. A full object takes only the keys that it still needs.
bool Machine::reach_live(const Frame& frame, const KeyReach& reach, std::uint32_t text, bool exact) const {
  const ObjectShape& shape = program_->objects[frame.shape];
  if (frame.count + frame.missing > shape.max) return false;
  const bool tight = frame.count + frame.missing == shape.max;
  if (!tight && reach.endless) return true;
  for (std::uint32_t name = reach.first_named; name < reach.last_named; ++name) {
    if (!bit(&stack_.words[frame.words], name) && (!tight || bit(shape.required.data(), name))) return true;
  }
  return !tight && exact && reach.num_finite > num_taken(frame, text);
}

// Number of used texts that begin with `prefix`.
std::uint64_t Machine::num_taken(const Frame& frame, std::uint32_t prefix) const {
  std::uint64_t taken = 0;
  for (std::uint32_t entry = frame.used; entry != kNoIndex; entry = stack_.used[entry].next) {
    if (stack_.text_starts_with(stack_.used[entry].text, prefix)) ++taken;
  }
  return taken;
}

// Whether `live` holds for some completion of the unfinished code point. This is asked only if few texts are left, so
// the search is short.
template <class Live>
bool Machine::some_completion(const Thread& thread, ByteLexer& lexer, const Live& live) {
  const Stack::Mark mark = stack_.mark();
  bool found = false;
  for (std::uint32_t byte = 0; byte < 256 && !found; ++byte) {
    const std::uint32_t moved = lexer.step(thread.state, static_cast<std::uint8_t>(byte));
    if (moved == 0) continue;
    const bool completes = (moved & ByteLexer::kCompletes) != 0;
    Thread next = thread;
    next.state = moved & ~ByteLexer::kCompletes;
    extend_key(next, static_cast<std::uint8_t>(byte), completes, true);
    found = completes ? live(next) : some_completion(next, lexer, live);
    stack_.release(mark);
  }
  return found;
}

// Whether an item that begins with the thread's text is not in its array yet.
bool Machine::supply_live(const Thread& thread, ByteLexer& lexer, const Supply& supply) {
  const bool inside = lexer.inside(thread.state);
  bool live = false;
  bool few = false;
  lexer.for_each_target(thread.state, [&](std::uint32_t target) {
    const KeyReach& reach = (*supply)[target];
    few = few || reach.num_finite > 0;
    live = live || reach.endless || (!inside && reach.num_finite > num_taken(stack_.frames[thread.frame], thread.text));
  });
  if (live || !inside || !few) return live;
  return some_completion(thread, lexer, [&](const Thread& whole) { return supply_live(whole, lexer, supply); });
}

void Machine::finish_item(std::uint32_t frame_index, std::uint32_t text, Threads& out) {
  const Frame frame = stack_.frames[frame_index];
  if (frame.kind != FrameKind::kArray) return finish_value(frame_index, out);
  if (used(frame, text)) return;
  Frame next = frame;
  stack_.used.push_back(UsedText{text, frame.used, stack_.texts[text].hash});
  next.used = static_cast<std::uint32_t>(stack_.used.size() - 1);
  push(out, Thread{.position = Position::kAfterItem, .frame = stack_.push(next)});
}

void Machine::finish_bare(const Thread& thread, Threads& out) {
  const ValueNode& node = program_->nodes[thread.shape];
  if (node.bare_supply == nullptr) return finish_value(thread.frame, out);
  std::uint32_t text = thread.text;
  if (node.by_value) {
    std::string spelled;
    for (std::uint32_t at = text; at != kEmptyText; at = stack_.texts[at].previous) {
      spelled.push_back(static_cast<char>(stack_.texts[at].last));
    }
    std::reverse(spelled.begin(), spelled.end());
    if (const auto number = Decimal::parse(spelled)) {
      text = kEmptyText;
      for (const char c : number->text())
        text = stack_.extend_text(text, static_cast<unsigned char>(c));
    }
  }
  finish_item(thread.frame, text, out);
}

bool Machine::key_live(const Thread& thread) {
  const ObjectShape& shape = program_->objects[thread.shape];
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

void Machine::begin_key(const Thread& thread, Threads& out) {
  const std::uint32_t shape = stack_.frames[thread.frame].shape;
  if (program_->objects[shape].keys == nullptr) return;
  const Thread key{.position = Position::kKey,
                   .shape = shape,
                   .state = program_->objects[shape].keys->start(),
                   .text = kEmptyText,
                   .frame = thread.frame};
  if (key_live(key)) push(out, key);
}

void Machine::step_object(const Thread& thread, std::uint8_t byte, Threads& out) {
  const bool may_close = thread.position == Position::kObjectFirst || thread.position == Position::kAfterProperty;
  if (byte == '}' && may_close) {
    const Frame& frame = stack_.frames[thread.frame];
    if (can_close_object(frame)) finish_value(frame.parent, out);
  } else if (byte == '"' && (thread.position == Position::kObjectFirst || thread.position == Position::kNextKey)) {
    begin_key(thread, out);
  } else if (byte == ',' && thread.position == Position::kAfterProperty) {
    Lent<Threads> key(key_);
    begin_key(thread, *key);
    if (!key->empty()) push(out, Thread{.position = Position::kNextKey, .frame = thread.frame});
  } else if (byte == ':' && thread.position == Position::kColon) {
    begin_property_value(thread, out);
  }
}

// Extends the text by a byte; once a code point of several bytes is complete, it replaces
// them.
void Machine::extend_key(Thread& thread, std::uint8_t byte, bool completes, bool was_inside) {
  if (!was_inside) thread.count = thread.text;
  if (!completes || !was_inside) {
    thread.text = stack_.extend_text(thread.text, byte);
    return;
  }
  std::string bytes(1, static_cast<char>(byte));
  for (std::uint32_t at = thread.text; at != thread.count; at = stack_.texts[at].previous) {
    bytes.push_back(static_cast<char>(stack_.texts[at].last));
  }
  std::reverse(bytes.begin(), bytes.end());
  thread.text = stack_.extend_text(thread.count, decode_json_character(bytes));
}

void Machine::step_key(const Thread& thread, std::uint8_t byte, Threads& out) {
  ByteLexer& lexer = *program_->objects[thread.shape].keys;
  if (byte == '"' && !lexer.inside(thread.state)) {
    const std::uint32_t label = lexer.accept(thread.state);
    if (label != 0) finish_key(thread, label - 1, out);
    return;
  }
  const std::uint32_t moved = lexer.step(thread.state, byte);
  if (moved == 0) return;
  Thread next = thread;
  next.state = moved & ~ByteLexer::kCompletes;
  extend_key(next, byte, (moved & ByteLexer::kCompletes) != 0, lexer.inside(thread.state));
  if (key_live(next)) push(out, next);
}

void Machine::finish_key(const Thread& thread, std::uint32_t label, Threads& out) {
  const Frame frame = stack_.frames[thread.frame];
  const ObjectShape& shape = program_->objects[frame.shape];
  const KeyClass& key = shape.classes[label];
  const bool tight = frame.count + frame.missing >= shape.max;
  if (tight && !key.required) return;
  Frame next = frame;
  ++next.count;
  next.pending = label;
  if (key.named != kNoIndex) {
    if (bit(&stack_.words[frame.words], key.named)) return;
    next.words = stack_.push_words(&stack_.words[frame.words], shape.num_words());
    stack_.words[next.words + key.named / 64] |= std::uint64_t{1} << key.named % 64;
    if (key.required) --next.missing;
  } else {
    if (used(frame, thread.text)) return;
    stack_.used.push_back(UsedText{thread.text, frame.used, stack_.texts[thread.text].hash});
    next.used = static_cast<std::uint32_t>(stack_.used.size() - 1);
  }
  push(out, Thread{.position = Position::kColon, .frame = stack_.push(next)});
}

void Machine::begin_property_value(const Thread& thread, Threads& out) {
  const Frame frame = stack_.frames[thread.frame];
  const ObjectShape& shape = program_->objects[frame.shape];
  for (const Choice& choice : shape.classes[frame.pending].choices) {
    std::uint32_t below = thread.frame;
    if (choice.marks != 0) {
      Frame marked = frame;
      marked.words = stack_.push_words(&stack_.words[frame.words], shape.num_words());
      stack_.words[marked.words + shape.num_named / 64 + 1] |= choice.marks;
      below = stack_.push(marked);
    }
    push(out, Thread{.position = Position::kValue, .shape = choice.node, .frame = below});
  }
}

bool Machine::can_close_array(const Frame& frame) const {
  const ArrayShape& shape = program_->arrays[frame.shape];
  return frame.count >= shape.min && (shape.counts == nullptr || shape.counts->met(&stack_.words[frame.words]));
}

// The frame for another item of `choice`'s kind; kNoIndex if the item is not allowed.
std::uint32_t Machine::begin_item(std::uint32_t frame_index, const ItemChoice& choice) {
  const Frame frame = stack_.frames[frame_index];
  const ArrayShape& shape = program_->arrays[frame.shape];
  if (frame.count >= shape.max) return kNoIndex;
  Frame next = frame;
  ++next.count;
  if (shape.counts != nullptr) {
    next.words = stack_.push_words(&stack_.words[frame.words], shape.contains.size());
    std::uint64_t* const counts = &stack_.words[next.words];
    if (!shape.counts->add(counts, choice.counted) || !shape.counts->live(next.count, counts)) return kNoIndex;
  }
  return stack_.push(next);
}

void Machine::begin_items(std::uint32_t frame_index, Threads& out) {
  const Frame frame = stack_.frames[frame_index];
  for (const ItemChoice& choice : program_->arrays[frame.shape].choices(frame.count)) {
    const std::uint32_t item = begin_item(frame_index, choice);
    if (item != kNoIndex) push(out, Thread{.position = Position::kValue, .shape = choice.node, .frame = item});
  }
}

// The first item of an array is begun by step(), which sees all threads that begin an item.
void Machine::step_array(const Thread& thread, std::uint8_t byte, Threads& out) {
  if (byte == ']') {
    const Frame& frame = stack_.frames[thread.frame];
    if (can_close_array(frame)) finish_value(frame.parent, out);
  } else if (byte == ',' && thread.position == Position::kAfterItem) {
    begin_items(thread.frame, out);
  }
}

// Whether the thread stands between the members or items of an object or array that counts conditions.
bool Machine::counts_conditions(const Thread& thread) const {
  const std::uint32_t shape = stack_.frames[thread.frame].shape;
  switch (thread.position) {
    case Position::kAfterProperty:
    case Position::kNextKey: return program_->objects[shape].num_marks > 0;
    case Position::kAfterItem: return program_->arrays[shape].counts != nullptr;
    default: return false;
  }
}

// Whether all texts that may follow `b` may follow `a`, for threads that count conditions: `a` has met at least as much
// and is otherwise equal. Without this, threads that differ in the conditions met would double with every property.
bool Machine::surpasses(const Thread& a, const Thread& b) const {
  const Frame& x = stack_.frames[a.frame];
  const Frame& y = stack_.frames[b.frame];
  if (a.position != b.position || a.spaces != b.spaces || x.parent != y.parent || x.shape != y.shape ||
      x.count != y.count || x.used != y.used || x.missing != y.missing) {
    return false;
  }
  const std::uint64_t* const met = &stack_.words[x.words];
  const std::uint64_t* const other = &stack_.words[y.words];
  if (a.position == Position::kAfterItem) {
    const auto& contains = program_->arrays[x.shape].contains;
    for (std::size_t i = 0; i < contains.size(); ++i) {
      const bool bounded = contains[i].max != kUnbounded;
      if (bounded ? met[i] != other[i] : met[i] < other[i]) return false;
    }
    return true;
  }
  const std::size_t num_names = program_->objects[x.shape].num_words() - 1;
  return std::equal(met, met + num_names, other) && (met[num_names] | other[num_names]) == met[num_names];
}

// A value that must differ from its array's other items is judged by that array's frame, so it cannot be shared.
bool Machine::shareable(const Thread& thread) const {
  const Frame& frame = stack_.frames[thread.frame];
  return thread.position == Position::kValue &&
         (frame.kind != FrameKind::kArray || !program_->arrays[frame.shape].unique);
}

// Equal values that begin at the same place are read once and return to each caller. Without this, a recursive schema
// whose alternatives agree for a while would double its threads with every level.
void Machine::share_values(Threads& threads) {
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (!shareable(threads[i])) continue;
    std::uint32_t shared = kNoIndex;
    for (std::size_t k = threads.size(); k-- > i + 1;) {
      const Thread& other = threads[k];
      if (!shareable(other) || other.shape != threads[i].shape || other.spaces != threads[i].spaces) continue;
      if (shared == kNoIndex) {
        shared = stack_.push(Frame{.kind = FrameKind::kShared});
        stack_.add_edge(shared, kNoIndex, threads[i].frame);
      }
      stack_.add_edge(shared, kNoIndex, other.frame);
      threads.erase(threads.begin() + static_cast<std::ptrdiff_t>(k));
    }
    if (shared != kNoIndex) threads[i].frame = shared;
  }
}

}  // namespace quire::grammar
