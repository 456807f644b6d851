// Grammar: a compiled constraint on the text of a generation, shared by the sequences that use it; Immutable after
// construction. GrammarState: one sequence's position in it; Engine thread only. Invariant: never fails open: after
// any accepted prefix the mask allows exactly the tokens that keep the text completable.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/base/ids.h"

namespace quire {

class GrammarState {
 public:
  virtual ~GrammarState() = default;
  // Takes over the position of `other`, a state of the same grammar. Its memory is reused.
  virtual void assign(const GrammarState& other) = 0;
  // Sets bit (id % 32) of mask[id / 32] for every token allowed next; clears the others. End-of-sequence tokens are
  // allowed exactly where the text so far is complete. mask: ceil(vocab_size / 32) words.
  virtual void fill_mask(std::span<std::uint32_t> mask) = 0;
  // Advances over a sampled token; false if the grammar forbids it (the state is then unchanged).
  virtual bool accept(TokenId token) = 0;
  // True if only end-of-sequence may follow.
  virtual bool finished() const = 0;
  // True once following the text has exceeded a request's allowance: no token is allowed any more.
  virtual bool exhausted() const { return false; }
  // The tokens that the grammar forces next (jump-forward); may be empty. Valid until the next
  // call.
  virtual std::span<const TokenId> forced_tokens() = 0;
};

class Grammar {
 public:
  virtual ~Grammar() = default;
  virtual std::unique_ptr<GrammarState> start() const = 0;
};

}  // namespace quire
