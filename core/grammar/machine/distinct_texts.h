// DistinctTexts: texts that must differ, keys of an object and items of an array: those read so far, and whether the
// one being read can still become a further one. A view of a machine's stack; one thread at a time.
#pragma once

#include "core/grammar/machine/program.h"
#include "core/grammar/machine/stack.h"
#include "core/grammar/machine/thread.h"

namespace quire::grammar {

class DistinctTexts {
 public:
  DistinctTexts(const Program& program, Stack& stack) : program_(program), stack_(stack) {}

  // Adds the text to those of the frame, which is not on the stack yet.
  void use(Frame& frame, std::uint32_t text);
  // Whether the text is among the unnamed keys, or items, of the frame.
  bool used(const Frame& frame, std::uint32_t text) const;
  // Extends the thread's text by a byte; a code point of several bytes replaces them once it is complete. completes:
  // the byte ends a character; was_inside: the bytes before it had begun one.
  void extend(Thread& thread, std::uint8_t byte, bool completes, bool was_inside);
  // Whether an unused key of the thread's object begins with its text.
  bool key_live(const Thread& thread);
  // Whether an item that is not in the thread's array yet begins with its text.
  bool item_live(const Thread& thread, ByteLexer& lexer, const Supply& supply);

 private:
  bool reach_live(const Frame& frame, const KeyReach& reach, std::uint32_t text, bool exact) const;
  std::uint64_t num_taken(const Frame& frame, std::uint32_t prefix) const;
  template <class Live>
  bool some_completion(const Thread& thread, ByteLexer& lexer, const Live& live);

  const Program& program_;
  Stack& stack_;
};

}  // namespace quire::grammar
