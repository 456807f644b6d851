#include "core/kv/moves/publications.h"

#include <algorithm>
#include <new>
#include <utility>

namespace quire {

namespace {

// A publication ends after this time without another block written: a store that fails is noticed long before.
constexpr std::chrono::seconds kPublishPatience{5};

}  // namespace

Publications::Publications(KvCache& kv, const RecordLayout& layout, TierSources& tiers, GoingOut& out, StepMoves& step)
    : kv_(kv),
      index_(kv.mutable_index()),
      layout_(layout),
      tiers_(tiers),
      shared_(tiers.shared()),
      out_(out),
      step_(step) {
  if (shared_ != nullptr) waiting_.reserve(kMostWaiting);
}

Publications::~Publications() {
  for (const PrefixNode node : waiting_)
    index_.drop_user(node);
}

void Publications::add(PrefixNode node) noexcept {
  if (shared_ == nullptr || waiting_.size() >= kMostWaiting || !index_.is_full(node)) return;
  waiting_.push_back(node);
  index_.add_user(node);
}

void Publications::move_on() {
  if (waiting_.empty()) return;
  const bool is_up = shared_->is_up();
  std::size_t num_left = 0;
  bool is_over = false;  // this step's share, or the store's room
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    const PrefixNode node = waiting_[i];
    const bool awaits_more = index_.block(node) != kNoBlock && layout_.awaits(node);
    is_over = is_over || (is_up && !awaits_more && !publish(node));
    if (is_up && (is_over || awaits_more)) {
      waiting_[num_left++] = node;
      continue;
    }
    index_.drop_user(node);
    index_.forget_unused(node);
  }
  waiting_.resize(num_left);
  if (num_left > 0 && out_.can_write(*shared_, layout_.most_bytes())) step_.has_more = true;
}

// False where there is no room for it now. A node that has left the pool by now is in the tiers that took it.
bool Publications::publish(PrefixNode node) {
  if (index_.block(node) == kNoBlock || out_.contains(node)) return true;
  const std::size_t num_groups = layout_.worth(node);
  if (shared_->is_being_written(node) || tiers_.has_record(*shared_, node, num_groups)) return true;
  if (step_.bytes_out < layout_.block_bytes()) return false;
  if (!out_.can_write(*shared_, layout_.payload_bytes(num_groups))) return false;
  try {
    out_.move(node, num_groups, false, static_cast<std::uint8_t>(TierKind::kShared));
  } catch (const std::bad_alloc&) {  // not published
  }
  return true;
}

void Publications::begin(Publication& publication, const BlockTable& table, std::span<const TokenId> tokens,
                         Clock::time_point now) {
  const auto block_size = static_cast<std::size_t>(kv_.block_size());
  publication.tokens.assign(tokens.begin(), tokens.end());
  index_.media().add_users(publication.tokens);
  publication.held.keys.reserve(tokens.size() / block_size);
  kv_.open(publication.held, table);
  publication.node = publication.held.root;
  publication.give_up = now + kPublishPatience;
}

bool Publications::has_ended(Publication& publication, Clock::time_point now) {
  if (!shared_->is_up()) return true;
  const auto block_size = static_cast<std::size_t>(kv_.block_size());
  const std::span<const TokenId> tokens = publication.tokens;
  const auto num_blocks = static_cast<std::int64_t>(tokens.size() / block_size);
  while (publication.num_written < num_blocks) {
    const auto begin = static_cast<std::size_t>(publication.num_written) * block_size;
    const PrefixNode node = index_.find(publication.node, kv_.key_at(publication.held, tokens, publication.num_written),
                                        tokens.subspan(begin, block_size));
    if (node == kNoNode) return true;
    if (!shared_->is_readable(node)) {
      const bool may_come = is_on_its_way(node) || offer_again(publication, node);
      return !may_come || now >= publication.give_up;
    }
    move_to(publication, node);
    ++publication.num_written;
    publication.give_up = now + kPublishPatience;
  }
  return true;
}

// Keeps the publication's node in the tree, even if its block is evicted.
void Publications::move_to(Publication& publication, PrefixNode node) {
  if (node != publication.held.root) index_.add_user(node);
  const PrefixNode before = std::exchange(publication.node, node);
  if (before == publication.held.root) return;
  index_.drop_user(before);
  index_.forget_unused(before);
}

bool Publications::is_on_its_way(PrefixNode node) const {
  return shared_->contains(node) || out_.contains(node) || std::ranges::find(waiting_, node) != waiting_.end();
}

// Offers a block once more that was computed while the store was down, or that the store has lost.
bool Publications::offer_again(Publication& publication, PrefixNode node) {
  if (index_.block(node) == kNoBlock || publication.num_offered > publication.num_written) return false;
  if (waiting_.size() >= kMostWaiting) return false;
  publication.num_offered = publication.num_written + 1;
  waiting_.push_back(node);
  index_.add_user(node);
  step_.has_more = true;
  return true;
}

SharedPrefix Publications::end(Publication& publication) {
  const ChainKey last_block = index_.key_of(publication.node);
  move_to(publication, publication.held.root);
  kv_.close(publication.held);
  index_.media().drop_users(std::exchange(publication.tokens, {}));
  SharedPrefix prefix{.num_tokens = publication.num_written * kv_.block_size(),
                      .num_blocks = static_cast<std::int32_t>(publication.num_written),
                      .fingerprint = hex_digits(shared_->fingerprint())};
  if (publication.num_written > 0) prefix.last_block = hex_digits(last_block);
  return prefix;
}

bool Publications::is_prefix(const SharedPrefix& prefix, BlockTable& table, std::span<const TokenId> tokens) const {
  const std::int64_t num_blocks = prefix.num_tokens / kv_.block_size();
  if (shared_ == nullptr || num_blocks <= 0 || prefix.num_tokens > std::ssize(tokens)) return false;
  return prefix.fingerprint == hex_digits(shared_->fingerprint()) &&
         prefix.last_block == hex_digits(kv_.key_at(table, tokens, num_blocks - 1));
}

}  // namespace quire
