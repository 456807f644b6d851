#include "server/http/client_budget.h"

#include <functional>
#include <utility>

namespace quire {

namespace {

// The part of the bound that only small charges may use.
constexpr std::int64_t kSmallShare = 8;

}  // namespace

bool ClientBudget::Charge::Larger::operator()(const Charge* a, const Charge* b) const {
  return a->num_bytes_ != b->num_bytes_ ? a->num_bytes_ > b->num_bytes_ : std::less<const Charge*>()(a, b);
}

ClientBudget::Charge::Charge(ClientBudget& budget, std::string client, std::function<void()> cut)
    : budget_(budget), client_(std::move(client)), cut_(std::move(cut)) {
  const std::lock_guard lock(budget_.mutex_);
  ++budget_.clients_[client_].num_charges;
  budget_.enlist(*this);
}

ClientBudget::Charge::~Charge() {
  const std::lock_guard lock(budget_.mutex_);
  if (unfinished_ && !was_cut_) budget_.withdraw(*this);
  if (was_cut_) budget_.num_bytes_cut_ -= num_bytes_;
  budget_.add(*this, -num_bytes_);
  const auto client = budget_.clients_.find(client_);
  if (--client->second.num_charges == 0) budget_.clients_.erase(client);
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
  const auto client = clients_.find(charge.client_);
  unrank(*client);
  num_bytes_ += num_bytes;
  client->second.num_bytes += num_bytes;
  charge.num_bytes_ += num_bytes;
  rank(*client);
}

void ClientBudget::enlist(Charge& charge) {
  const auto client = clients_.find(charge.client_);
  client->second.unfinished.insert(&charge);
  rank(*client);
}

void ClientBudget::withdraw(Charge& charge) {
  const auto client = clients_.find(charge.client_);
  unrank(*client);
  client->second.unfinished.erase(&charge);
  rank(*client);
}

void ClientBudget::rank(const Clients::value_type& client) {
  if (!client.second.unfinished.empty()) heaviest_.insert({client.second.num_bytes, client.first});
}

void ClientBudget::unrank(const Clients::value_type& client) {
  heaviest_.erase({client.second.num_bytes, client.first});
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
    Charge* const largest = *clients_.find(heaviest_.rbegin()->second)->second.unfinished.begin();
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
