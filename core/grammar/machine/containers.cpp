// Machine's methods that read objects and arrays.
#include <bit>

#include "core/grammar/machine/decimal.h"
#include "core/grammar/machine/lent.h"
#include "core/grammar/machine/machine.h"

namespace quire::grammar {

bool Machine::can_close_object(const Frame& frame) const {
  const ObjectShape& shape = program_->objects[frame.shape];
  if (frame.missing > 0 || frame.count < shape.min) return false;
  if (shape.num_marks == 0) return true;
  const std::uint64_t marks = stack_.words[frame.words + shape.num_named / 64 + 1];
  return static_cast<std::uint32_t>(std::popcount(marks)) == shape.num_marks;
}

void Machine::finish_item(std::uint32_t frame_index, std::uint32_t text, Threads& out) {
  const Frame frame = stack_.frames[frame_index];
  if (frame.kind != FrameKind::kArray) return finish_value(frame_index, out);
  if (distinct().used(frame, text)) return;
  Frame next = frame;
  distinct().use(next, text);
  push(out, Thread{.position = Position::kAfterItem, .frame = stack_.push(next)});
}

void Machine::finish_bare(const Thread& thread, Threads& out) {
  const ValueNode& node = program_->nodes[thread.shape];
  if (node.bare_supply == nullptr) return finish_value(thread.frame, out);
  std::uint32_t text = thread.text;
  if (node.by_value) {
    if (const auto number = Decimal::parse(stack_.bytes_between(kEmptyText, text))) {
      text = kEmptyText;
      for (const char c : number->text())
        text = stack_.extend_text(text, static_cast<unsigned char>(c));
    }
  }
  finish_item(thread.frame, text, out);
}

void Machine::begin_key(const Thread& thread, Threads& out) {
  const std::uint32_t shape = stack_.frames[thread.frame].shape;
  if (program_->objects[shape].keys == nullptr) return;
  const Thread key{.position = Position::kKey,
                   .shape = shape,
                   .state = program_->objects[shape].keys->start(),
                   .text = kEmptyText,
                   .frame = thread.frame};
  if (distinct().key_live(key)) push(out, key);
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
  distinct().extend(next, byte, (moved & ByteLexer::kCompletes) != 0, lexer.inside(thread.state));
  if (distinct().key_live(next)) push(out, next);
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
    if (distinct().used(frame, thread.text)) return;
    distinct().use(next, thread.text);
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

}  // namespace quire::grammar
