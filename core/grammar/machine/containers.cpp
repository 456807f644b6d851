// The part of Machine that reads objects and arrays.
#include <algorithm>
#include <bit>
#include <string>

#include "core/grammar/machine/decimal.h"
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

// Whether some key is left among those that `reach` describes. A full object takes only the keys that it still needs.
bool Machine::reach_live(const Frame& frame, const KeyReach& reach, std::uint32_t text, bool exact) const {
  const ObjectShape& shape = program_->objects[frame.shape];
  if (frame.count + frame.missing > shape.max) return false;
  const bool tight = frame.count + frame.missing == shape.max;
  if (!tight && reach.endless) return true;
  for (std::uint32_t name = reach.first_named; name < reach.last_named; ++name) {
    if (!bit(&stack_.words[frame.words], name) && (!tight || bit(shape.required.data(), name))) return true;
  }
  if (tight || reach.num_finite == 0) return false;
  if (!exact) return true;
  return reach.num_finite > num_taken(frame, text);
}

// How many of the texts already used begin with `prefix`.
std::uint64_t Machine::num_taken(const Frame& frame, std::uint32_t prefix) const {
  std::uint64_t taken = 0;
  for (std::uint32_t entry = frame.used; entry != kNoIndex; entry = stack_.used[entry].next) {
    if (stack_.text_starts_with(stack_.used[entry].text, prefix)) ++taken;
  }
  return taken;
}

// Whether some item that begins with the thread's text is not in its array yet.
bool Machine::supply_live(const Thread& thread, const ByteLexer& lexer, const Supply& supply) const {
  const Frame& frame = stack_.frames[thread.frame];
  const bool exact = !lexer.inside(thread.state);
  bool live = false;
  lexer.for_each_target(thread.state, [&](std::uint32_t target) {
    const KeyReach& reach = (*supply)[target];
    live = live || reach.endless || (exact ? reach.num_finite > num_taken(frame, thread.text) : reach.num_finite > 0);
  });
  return live;
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

bool Machine::key_live(const Thread& thread) const {
  const Frame& frame = stack_.frames[thread.frame];
  const ObjectShape& shape = program_->objects[thread.shape];
  const bool exact = !shape.keys->inside(thread.state);
  bool live = false;
  shape.keys->for_each_target(thread.state, [&](std::uint32_t target) {
    live = live || (target != 0 && reach_live(frame, shape.reach[target], thread.text, exact));
  });
  return live;
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
    Threads key;
    begin_key(thread, key);
    if (!key.empty()) push(out, Thread{.position = Position::kNextKey, .frame = thread.frame});
  } else if (byte == ':' && thread.position == Position::kColon) {
    begin_property_value(thread, out);
  }
}

// Follows the text over one more byte; the bytes of a code point written in several are replaced by it once it is
// complete.
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
  if (frame.count < shape.min) return false;
  for (std::size_t i = 0; i < shape.contains.size(); ++i) {
    if (stack_.words[frame.words + i] < shape.contains[i].min) return false;
  }
  return true;
}

// The frame in which one more item stands, chosen to be of `choice`'s kind; kNoIndex where it may not be.
std::uint32_t Machine::begin_item(std::uint32_t frame_index, const ItemChoice& choice) {
  const Frame frame = stack_.frames[frame_index];
  const ArrayShape& shape = program_->arrays[frame.shape];
  if (frame.count >= shape.max) return kNoIndex;
  Frame next = frame;
  ++next.count;
  if (!shape.contains.empty()) next.words = stack_.push_words(&stack_.words[frame.words], shape.contains.size());
  for (std::size_t i = 0; i < shape.contains.size(); ++i) {
    const ContainsRule& rule = shape.contains[i];
    std::uint64_t& counted = stack_.words[next.words + i];
    if ((choice.counted >> i & 1) != 0) ++counted;
    const std::size_t prefix = shape.prefix.size();
    std::uint64_t left = rule.left_in_prefix[std::min<std::size_t>(next.count, prefix)];
    if (rule.rest_counts)
      left += shape.max - std::min<std::uint64_t>(shape.max, std::max<std::size_t>(next.count, prefix));
    if (counted > rule.max || counted + left < rule.min) return kNoIndex;
  }
  return stack_.push(next);
}

void Machine::step_array(const Thread& thread, std::uint8_t byte, Threads& out) {
  const Frame frame = stack_.frames[thread.frame];
  if (byte == ']') {
    if (can_close_array(frame)) finish_value(frame.parent, out);
    return;
  }
  const bool first = thread.position == Position::kArrayFirst;
  if (!first && byte != ',') return;
  for (const ItemChoice& choice : program_->arrays[frame.shape].choices(frame.count)) {
    const std::uint32_t item = begin_item(thread.frame, choice);
    if (item == kNoIndex) continue;
    if (first) {
      begin_value(choice.node, item, byte, out);
    } else {
      push(out, Thread{.position = Position::kValue, .shape = choice.node, .frame = item});
    }
  }
}

}  // namespace quire::grammar
