#include "core/kv/moves/chain_transfer.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "kernels/check.h"

namespace quire {

namespace {

Error no_room() {
  return Error{ErrorKind::kUnavailable,
               "The KV cache has no room for the slot now. Please retry later.",
               "kv_cache_full",
               {},
               std::chrono::seconds(1)};
}

tl::unexpected<Error> nothing_cached() {
  return failure(ErrorKind::kConflict, "Nothing of the slot's conversation is in the cache", "slot_is_empty");
}

}  // namespace

void ChainTransfer::save(std::string salt, std::vector<TokenId> tokens, std::int64_t max_bytes, Done done) {
  max_bytes_ = max_bytes;
  is_held_ = false;
  saves_ = true;
  kv_.mutable_index().media().add_users(tokens);
  begin({.salt = std::move(salt)}, std::move(tokens), std::move(done));
}

void ChainTransfer::restore(KeptChain chain, Done done) {
  saves_ = false;
  auto tokens = kv_.mutable_index().media().imported(chain.content);
  begin(std::move(chain), std::move(tokens), std::move(done));
  if (!is_moving()) return;
  if (const auto checked = check_sizes(); !checked) give_up(checked.error());
}

// tokens: their media have users, which the transfer drops at its end; nullopt if the chain's content is invalid.
void ChainTransfer::begin(KeptChain chain, std::optional<std::vector<TokenId>> tokens, Done done) {
  QUIRE_CHECK(!is_moving(), "one chain moves at a time");
  chain_ = std::move(chain);
  tokens_ = tokens ? *std::move(tokens) : std::vector<TokenId>();
  done_ = std::move(done);
  num_in_flight_ = 0;
  ++number_;
  table_ = {};
  try {
    if (saves_) chain_.content.media.reserve(kv_.index().media().num_stretches(tokens_));
    kv_.open(table_, chain_.salt);
    kv_.reserve(table_, std::ssize(tokens_));
  } catch (const std::bad_alloc&) {
    give_up(out_of_memory());
  }
}

// Allocates nothing: begin() reserved memory for the exported pieces.
void ChainTransfer::end(const Error* error) {
  MediaNames& media = kv_.mutable_index().media();
  if (table_.is_open) {
    kv_.release(table_, tokens_, std::int64_t{table_.num_entered} * kv_.block_size());
    kv_.close(table_);
  }
  KeptChain chain = std::exchange(chain_, {});
  std::vector<TokenId> tokens = std::exchange(tokens_, {});
  if (saves_) {
    media.export_and_drop(tokens, chain.content.media);
    chain.content.tokens = std::move(tokens);
  } else {
    media.drop_users(tokens);
    chain.payloads.clear();
  }
  const Done done = std::exchange(done_, nullptr);
  if (error == nullptr) {
    done(std::move(chain));
  } else {
    done(tl::make_unexpected(*error));
  }
}

void ChainTransfer::give_up(const Error& error) {
  if (is_moving()) end(&error);
}

std::span<const TokenId> ChainTransfer::block_tokens(std::int64_t index) const {
  const auto block_size = static_cast<std::size_t>(kv_.block_size());
  return std::span(tokens_).subspan(static_cast<std::size_t>(index) * block_size, block_size);
}

// The child of the table's node that holds block number `index`.
PrefixNode ChainTransfer::child(std::int64_t index) {
  return kv_.mutable_index().find(table_.node, kv_.key_at(table_, tokens_, index), block_tokens(index));
}

// Blocks from the beginning on, up to where a sequence can continue.
std::int64_t ChainTransfer::num_in_pool() {
  const PrefixIndex& index = kv_.mutable_index();
  PrefixNode node = table_.root;
  KvPath path(layout_.groups(), 0);
  std::int64_t num_found = 0;
  for (std::int64_t i = 0; (i + 1) * kv_.block_size() <= std::ssize(tokens_); ++i) {
    node = index.find(node, kv_.key_at(table_, tokens_, i), block_tokens(i));
    if (node == kNoNode || index.block(node) == kNoBlock) break;
    path.add([&](std::size_t group) { return layout_.groups()[group]->has(node); });
    if (path.goes_on()) num_found = i + 1;
  }
  return num_found;
}

Result<void> ChainTransfer::hold_saved() {
  const std::int64_t num_found = num_in_pool();
  if (num_found == 0) return nothing_cached();
  std::int64_t num_bytes = 0;
  for (std::int64_t i = 0; i < num_found; ++i)
    num_bytes += layout_.payload_bytes(layout_.needed(i, num_found));
  if (num_bytes > max_bytes_) {
    return failure(ErrorKind::kTooLarge, "The slot has " + std::to_string(num_bytes) + " bytes, more than may be saved",
                   "slot_too_large");
  }
  keep_first(num_found * kv_.block_size());
  chain_.payloads.resize(static_cast<std::size_t>(num_found));
  for (std::int64_t i = 0; i < num_found; ++i) {
    const KvCache::Taken taken = kv_.take(table_, child(i), layout_.needed(i, num_found));
    if (taken.block == kNoBlock) return tl::make_unexpected(no_room());
  }
  num_left_ = num_found;
  is_held_ = true;
  return {};
}

void ChainTransfer::keep_first(std::int64_t num_tokens) {
  MediaNames& media = kv_.mutable_index().media();
  const auto kept = static_cast<std::size_t>(num_tokens);
  // Adds users again for the pieces that stay, which nodes of the tree use.
  media.drop_users(tokens_);
  tokens_.resize(kept);
  media.add_users(tokens_);
}

Result<void> ChainTransfer::check_sizes() const {
  const std::int64_t num_blocks = std::ssize(chain_.payloads);
  bool fits = num_blocks > 0 && std::ssize(tokens_) == num_blocks * kv_.block_size();
  for (std::int64_t i = 0; i < num_blocks; ++i) {
    const std::int64_t wanted = layout_.payload_bytes(layout_.needed(i, num_blocks));
    fits = fits && std::ssize(*chain_.payloads[static_cast<std::size_t>(i)]) == wanted;
  }
  if (fits) return {};
  return invalid("The saved slot has another layout than this model's cache", "filename", "slot_mismatch");
}

bool ChainTransfer::add_moves(StepMoves& step) {
  if (!is_moving() || table_.is_restoring) return false;
  try {
    if (!saves_) return add_loads(step);
    if (!is_held_) {
      if (const auto held = hold_saved(); !held) {
        give_up(held.error());
        return false;
      }
    }
    add_saves(step);
  } catch (const std::bad_alloc&) {
    give_up(out_of_memory());
  }
  return is_moving() && saves_ && num_left_ > 0;
}

// Saves the last block first, because the state after it, which the table does not hold, may be evicted later.
void ChainTransfer::add_saves(StepMoves& step) {
  PrefixIndex& index = kv_.mutable_index();
  while (num_left_ > 0 && step.bytes_out >= layout_.block_bytes()) {
    const std::int64_t i = num_left_ - 1;
    const std::size_t num_groups = layout_.needed(i, std::ssize(chain_.payloads));
    const BlockId block = table_.blocks[static_cast<std::size_t>(i)];
    const PrefixNode node = index.node_of(block);
    const std::int64_t num_bytes = layout_.payload_bytes(num_groups);
    auto content = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(num_bytes));
    step.moves.push_back({.kind = BlockMove::Kind::kOffload,
                          .node = node,
                          .block = block,
                          .extras = layout_.located(node, num_groups),
                          .bytes = content,
                          .unfilled = content.get(),
                          .chain = number_});
    chain_.payloads[static_cast<std::size_t>(i)] = std::move(content);
    ++num_in_flight_;
    --num_left_;
    step.bytes_out -= num_bytes;
  }
}

bool ChainTransfer::add_loads(StepMoves& step) {
  while (table_.num_entered < num_blocks() && step.bytes_in >= layout_.block_bytes()) {
    if (!load_next(step)) {
      give_up(no_room());
      return false;
    }
  }
  if (num_in_flight_ == 0 && table_.num_entered == num_blocks()) end_if_done();
  return is_moving() && table_.num_entered < num_blocks();
}

// False without room: a share of the pool is left to running sequences.
bool ChainTransfer::load_next(StepMoves& step) {
  PrefixIndex& index = kv_.mutable_index();
  const std::int64_t i = table_.num_entered;
  const std::size_t num_groups = layout_.needed(i, num_blocks());
  PrefixNode node = child(i);
  const bool is_there = node != kNoNode && index.block(node) != kNoBlock;
  if (!is_there && kv_.pool().num_available() <= kv_.pool().num_blocks() / 16) return false;
  if (!layout_.has_spare(num_groups)) return false;
  step.moves.reserve(step.moves.size() + 2 + static_cast<std::size_t>(kv_.states().num_states()));
  if (node == kNoNode) node = index.insert(table_.node, kv_.key_at(table_, tokens_, i), block_tokens(i));
  if (num_groups > 0) step.add_due_copies();
  const KvCache::Taken taken = kv_.take(table_, node, num_groups);
  if (taken.block == kNoBlock) {
    index.forget_unused(node);
    return false;
  }
  BlockMove load{.kind = BlockMove::Kind::kLoad,
                 .node = node,
                 .block = taken.is_new ? taken.block : kNoBlock,
                 .extras = taken.extras,
                 .bytes = chain_.payloads[static_cast<std::size_t>(i)],
                 .chain = number_};
  if (load.block == kNoBlock && load.extras.part == kNoPart && load.extras.state == kNoState) return true;
  step.bytes_in -= std::ssize(*load.bytes);
  step.moves.push_back(std::move(load));
  ++num_in_flight_;
  return true;
}

void ChainTransfer::note_done(const BlockMove& move) {
  if (move.chain == number_) --num_in_flight_;
}

void ChainTransfer::end_if_done() {
  if (!is_moving() || num_in_flight_ > 0) return;
  if (saves_ ? !is_held_ || num_left_ > 0 : table_.num_entered < num_blocks()) return;
  end(nullptr);
}

}  // namespace quire
