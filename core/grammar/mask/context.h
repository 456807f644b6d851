// Context: what a mask has independently of the frames below the current lexeme, prepared once per lexer state or value
// node, and the tokens that go beyond it, grouped by how they leave. Immutable after construction.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/grammar/machine/machine.h"
#include "core/grammar/mask/profile.h"
#include "core/grammar/mask/trie.h"
#include "core/grammar/mask/vocabulary.h"
#include "core/grammar/mask/walker.h"

namespace quire::grammar {

// Tokens that leave the lexeme: their remaining bytes as a trie.
struct Exit {
  std::uint32_t label;  // the class of a finished key; 0 for a finished value
  Trie rest;
};

// Keys that may be used up: tokens below `node` must be tried against the object itself.
struct Resume {
  std::string path;
  std::uint32_t node;
};

struct Context {
  std::shared_ptr<const TokenSet> allowed;
  std::vector<Exit> exits;
  std::vector<Resume> resumes;

  std::size_t num_bytes() const;  // including its index entry
};

using ContextKey = std::tuple<Position, std::uint32_t, std::uint32_t, std::uint32_t, ByteSet>;

using KnownContexts = std::map<ContextKey, std::shared_ptr<const Context>>;

// Bytes that may follow a value inside JSON.
const ByteSet& json_follow();

struct LexerContexts {
  std::map<std::uint32_t, std::shared_ptr<const Profile>> profiles;  // by lexer state
  KnownContexts known;
};

// The profile of a lexer's state, made on first use.
const Profile& prepare_profile(ByteLexer& lexer, std::uint32_t state, const Lengths* lengths,
                               const TokenVocabulary& vocabulary);

// Prepares Contexts; uses the machine's stack above its mark only.
class ContextBuilder {
 public:
  ContextBuilder(Machine& machine, const TokenVocabulary& vocabulary, WalkLevels& levels)
      : machine_(machine), vocabulary_(vocabulary), levels_(levels) {}
  // thread: the starting position; its frame is ignored (a key's reach is that of its object's shape).
  // follow: bytes that may come after the value or rule.
  std::shared_ptr<const Context> build(const Thread& thread, const ByteSet& follow);

 private:
  void walk_lexer(const Thread& thread);
  template <class OnLive>
  void for_each_live(const Thread& thread, const OnLive& on_live);
  void walk_rule(const Thread& thread);
  void allow(std::span<const std::int32_t> tokens);
  bool cut_string(const Thread& thread);
  bool cut_key(const Thread& thread);
  void visit(std::uint32_t node, const Thread& thread, std::size_t depth);
  void visit_rule(std::uint32_t node, std::uint32_t state, std::size_t depth);
  void leave(std::uint32_t node, std::size_t depth, std::uint32_t label, const ByteSet& follow);
  void leave_json(std::uint32_t node, std::size_t from);
  void leave_value(std::uint32_t node, std::size_t depth, bool passed);
  void leave_subtree(std::uint32_t node, std::size_t depth, std::uint32_t label);
  std::uint32_t closing_quote(std::uint32_t node) const;
  bool bounds_live(const StringShape& string, std::uint32_t state, std::uint32_t count) const;
  bool endless(const ObjectShape& shape, std::uint32_t state) const;
  ByteLexer& lexer_of(const Thread& thread) const;

  Machine& machine_;
  const TokenVocabulary& vocabulary_;
  WalkLevels& levels_;
  ByteSet follow_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<TokenSet> allowed_;
  std::vector<std::uint32_t> known_;  // rules: the tokens in allowed_, as a mask
  std::map<std::uint32_t, std::vector<Trie::Entry>> leaving_;
};

}  // namespace quire::grammar
