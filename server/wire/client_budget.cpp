#include "server/wire/client_budget.h"

#include <functional>
#include <utility>

namespace quire {

namespace {

// 1/kSmallShare of the limit is for small charges only.
constexpr std::int64_t kSmallShare = 8;

// Makes a detached node, so that moving it into and out of a set allocates nothing.
template <class Set>
typename Set::node_type make_place(typename Set::value_type value) {
  Set one;
  one.insert(value);
  return one.extract(one.begin());
}

}  // namespace

bool ClientBudget::Lighter::operator()(const Account* a, const Account* b) const {
  return a->second.num_bytes != b->second.num_bytes ? a->second.num_bytes < b->second.num_bytes : a->first < b->first;
}

bool ClientBudget::Charge::Larger::operator()(const Charge* a, const Charge* b) const {
  return a->num_bytes_ != b->num_bytes_ ? a->num_bytes_ > b->num_bytes_ : std::less<const Charge*>()(a, b);
}

ClientBudget::Charge::Charge(ClientBudget& budget, std::string client, std::function<void()> cut)
    : budget_(budget), cut_(std::move(cut)), place_(make_place<Charges>(this)) {
  const std::lock_guard lock(budget_.mutex_);
  const auto [at, is_new] = budget_.clients_.try_emplace(std::move(client));
  client_ = &*at;
  try {
    if (is_new) at->second.place = make_place<Ranks>(client_);
  } catch (...) {
    budget_.clients_.erase(at);
    throw;
  }
  ++at->second.num_charges;
  budget_.enlist(*this);
}

ClientBudget::Charge::~Charge() {
  const std::lock_guard lock(budget_.mutex_);
  if (unfinished_ && !was_cut_) budget_.withdraw(*this);
  if (was_cut_) budget_.num_bytes_cut_ -= num_bytes_;
  budget_.add(*this, -num_bytes_);
  if (--client_->second.num_charges == 0) budget_.clients_.erase(client_->first);
}

bool ClientBudget::Charge::take(std::int64_t num_bytes, std::int64_t bound) {
  const std::lock_guard lock(budget_.mutex_);
  if (was_cut_) return false;
  budget_.withdraw(*this);
  budget_.add(*this, num_bytes);
  budget_.enlist(*this);
  return budget_.make_room(*this, bound);
}

void ClientBudget::Charge::complete() {
  const std::lock_guard lock(budget_.mutex_);
  if (unfinished_ && !was_cut_) budget_.withdraw(*this);
  unfinished_ = false;
}

bool ClientBudget::Charge::was_cut() const {
  const std::lock_guard lock(budget_.mutex_);
  return was_cut_;
}

std::int64_t ClientBudget::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

std::int64_t ClientBudget::num_cut() const {
  const std::lock_guard lock(mutex_);
  return num_cut_;
}

void ClientBudget::add(Charge& charge, std::int64_t num_bytes) {
  Account& client = *charge.client_;
  unrank(client);
  num_bytes_ += num_bytes;
  client.second.num_bytes += num_bytes;
  charge.num_bytes_ += num_bytes;
  rank(client);
}

void ClientBudget::enlist(Charge& charge) {
  charge.client_->second.unfinished.insert(std::move(charge.place_));
  rank(*charge.client_);
}

void ClientBudget::withdraw(Charge& charge) {
  unrank(*charge.client_);
  charge.place_ = charge.client_->second.unfinished.extract(&charge);
  rank(*charge.client_);
}

void ClientBudget::rank(Account& client) {
  if (!client.second.unfinished.empty() && client.second.place) heaviest_.insert(std::move(client.second.place));
}

void ClientBudget::unrank(Account& client) {
  if (!client.second.place) client.second.place = heaviest_.extract(&client);
}

bool ClientBudget::fits(const Charge& charge, std::int64_t bound) const {
  const std::int64_t kept = num_bytes_ - num_bytes_cut_;
  // A single charge may use all of it.
  const bool shares = charge.num_bytes_ > kSmall && kept > charge.num_bytes_;
  return kept <= (shares ? bound - bound / kSmallShare : bound);
}

bool ClientBudget::make_room(Charge& charge, std::int64_t bound) {
  while (!fits(charge, bound)) {
    // `charge` is unfinished, so there is a heaviest client.
    Charge* const largest = *(*heaviest_.rbegin())->second.unfinished.begin();
    largest->was_cut_ = true;
    withdraw(*largest);
    num_bytes_cut_ += largest->num_bytes_;
    ++num_cut_;
    if (largest == &charge) return false;
    largest->cut_();
  }
  return true;
}

}  // namespace quire
