// MaskFiller: the set of tokens that a Machine's threads allow next. One thread at a time, under Program::mutex. Most
// of a mask comes from prepared Contexts; only tokens that leave the current lexeme are tried against the stack.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/grammar/machine/machine.h"
#include "core/grammar/mask/context.h"
#include "core/grammar/mask/vocabulary.h"

namespace quire::grammar {

// Shared by all generations under a grammar: contexts of value nodes, and working memory, each buffer lent to one call
// at a time, so that following a text allocates nothing in the long run. Under Program::mutex.
struct GrammarWorkspace {
  KnownContexts known;
  PreparedBytes prepared;  // bytes of the known contexts
  void drop_prepared() {
    known.clear();
    prepared.clear();
  }

  WalkLevels levels;
  std::deque<Threads> forbidding;  // by depth
  std::vector<std::uint32_t> mask;
  Threads beginning, following, leaving, resuming;
  Threads now, tried, only;
  std::u32string characters;
  std::vector<std::string> ways;
  std::string text;
};

class MaskFiller {
 public:
  MaskFiller(Machine& machine, const TokenVocabulary& vocabulary, GrammarWorkspace& workspace)
      : machine_(machine), vocabulary_(vocabulary), workspace_(workspace) {}
  // Sets the bits of the tokens that keep the text completable; other bits stay as they are.
  void fill(const Threads& threads, std::span<std::uint32_t> mask);

 private:
  using Mask = std::span<std::uint32_t>;
  void fill_thread(const Thread& thread, Mask mask);
  void fill_direct(const Thread& thread, Mask mask);
  void fill_value(const Thread& thread, Mask mask);
  void fill_key(const Thread& thread, Mask mask);
  void fill_string(const Thread& thread, Mask mask);
  void fill_differing(const Thread& thread, const Context& prepared, Mask mask);
  ByteLexer& lexer_of(const Thread& thread) const;
  void apply(const Context& context, const Thread& thread, Mask mask);
  void walk(const Trie& trie, std::uint32_t node, const Threads& threads, Mask mask);
  void resume(const Resume& at, const Thread& thread, Mask mask);
  void forbid_used(std::uint32_t node, const Thread& thread, std::size_t depth, Mask mask);
  bool extends_to_used(const Thread& thread);
  ByteSet follow_of(std::uint32_t frame);
  std::shared_ptr<const Context> context_of(ByteLexer& lexer, const Thread& thread, const ContextKey& key);
  std::shared_ptr<const Context> own_context(const Thread& thread, const ContextKey& key);
  std::shared_ptr<const Context> context(const Thread& thread, const ContextKey& key, KnownContexts& known,
                                         PreparedBytes& prepared);
  static void set(Mask mask, std::span<const std::int32_t> tokens);

  Machine& machine_;
  const TokenVocabulary& vocabulary_;
  GrammarWorkspace& workspace_;
};

}  // namespace quire::grammar
