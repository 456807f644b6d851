#include "core/engine/slot_orders.h"

#include <algorithm>
#include <utility>

namespace quire {

void SlotOrders::add(SlotOrder order) {
  std::optional<Error> refused;
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      orders_.push_back(std::move(order));
      return;
    }
    refused = closed_;
  }
  (*order.done)(tl::make_unexpected(*std::move(refused)));
}

bool SlotOrders::has_any() const {
  const std::lock_guard lock(mutex_);
  return !orders_.empty();
}

std::optional<SlotOrder> SlotOrders::take_first() {
  const std::lock_guard lock(mutex_);
  if (orders_.empty()) return std::nullopt;
  std::optional<SlotOrder> order = std::move(orders_.front());
  orders_.erase(orders_.begin());
  return order;
}

void SlotOrders::close(const Error& error) {
  std::vector<SlotOrder> refused;
  {
    const std::lock_guard lock(mutex_);
    closed_ = error;
    refused.swap(orders_);
  }
  for (const SlotOrder& order : refused)
    (*order.done)(tl::make_unexpected(error));
}

void SlotRecords::note(std::int32_t wanted, const std::string& salt, std::span<const TokenId> tokens) {
  const std::size_t slot = contains(wanted) ? static_cast<std::size_t>(wanted) : slot_for(salt, tokens);
  set(static_cast<std::int32_t>(slot), salt, {tokens.begin(), tokens.end()});
}

void SlotRecords::set(std::int32_t slot, std::string salt, std::vector<TokenId> tokens) {
  Record& record = records_[static_cast<std::size_t>(slot)];
  media_.add_users(tokens);
  media_.drop_users(record.tokens);
  record = {std::move(salt), std::move(tokens), ++now_};
}

void SlotRecords::erase(std::int32_t slot) {
  Record& record = records_[static_cast<std::size_t>(slot)];
  media_.drop_users(record.tokens);
  record = {};
}

// A conversation continues in the slot with the longest common prefix, if that is at least half of the slot's tokens.
std::size_t SlotRecords::slot_for(const std::string& salt, std::span<const TokenId> tokens) const {
  std::size_t best = 0;
  std::ptrdiff_t most_common = -1;
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const Record& record = records_[i];
    if (record.used == 0 || record.salt != salt) continue;
    const auto common = std::ranges::mismatch(record.tokens, tokens).in1 - record.tokens.begin();
    if (2 * common < std::ssize(record.tokens) || common <= most_common) continue;
    most_common = common;
    best = i;
  }
  if (most_common >= 0) return best;
  const auto oldest = std::ranges::min_element(records_, {}, &Record::used);
  return static_cast<std::size_t>(oldest - records_.begin());
}

}  // namespace quire
