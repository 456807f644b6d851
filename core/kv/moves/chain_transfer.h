// ChainTransfer: moves one conversation's blocks between the pool and host memory beside the steps, to save or restore
// a slot. Engine thread only. Invariants: one chain at a time; its table holds the blocks until their moves are done,
// unless running sequences need the room; it moves no more in a step than its share; the callback is called once for
// each chain, also if memory fails.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/kv/groups/record_layout.h"
#include "core/kv/kv_cache.h"
#include "core/kv/moves/chain_file.h"
#include "core/kv/moves/step_moves.h"

namespace quire {

class ChainTransfer {
 public:
  // Result: the saved chain, or the restored chain as far as the pool now has it, without bytes.
  using Done = std::function<void(Result<KeptChain>)>;

  ChainTransfer(KvCache& kv, const RecordLayout& layout) : kv_(kv), layout_(layout) {}

  bool is_moving() const { return done_ != nullptr; }
  bool is_saving() const { return is_moving() && saves_; }
  // Call only while no chain moves. A save keeps at most max_bytes.
  void save(std::string salt, std::vector<TokenId> tokens, std::int64_t max_bytes, Done done);
  void restore(KeptChain chain, Done done);
  // Table and tokens of the chain being saved; LowerTier loads its blocks that are no longer in the pool.
  BlockTable& table() { return table_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }

  // Adds the chain's share of a step. True where the next step has more to do.
  bool add_moves(StepMoves& step);
  void note_done(const BlockMove& move);
  // After all moves of a step were noted.
  void end_if_done();
  // Ends with this error, where one moves.
  void give_up(const Error& error);
  bool holds_blocks() const { return !table_.blocks.empty(); }

 private:
  void begin(KeptChain chain, std::optional<std::vector<TokenId>> tokens, Done done);
  void end(const Error* error);
  std::int64_t num_blocks() const { return kv_.blocks_for(std::ssize(tokens_)); }
  PrefixNode child(std::int64_t index);
  std::span<const TokenId> block_tokens(std::int64_t index) const;
  std::int64_t num_in_pool();
  Result<void> hold_saved();
  void keep_first(std::int64_t num_tokens);
  Result<void> check_sizes() const;
  void add_saves(StepMoves& step);
  bool add_loads(StepMoves& step);
  bool load_next(StepMoves& step);

  KvCache& kv_;
  const RecordLayout layout_;
  KeptChain chain_;
  std::vector<TokenId> tokens_;  // the chain's content, as this process names it
  BlockTable table_;
  Done done_;
  bool saves_ = false;
  bool is_held_ = false;            // a save holds references to its blocks
  std::int64_t max_bytes_ = 0;      // limit of a save
  std::int64_t num_left_ = 0;       // blocks of a save that no step has moved yet
  std::int64_t num_in_flight_ = 0;  // moves in steps that are not done
  std::uint64_t number_ = 0;        // current chain; moves with another number are ignored
};

}  // namespace quire
