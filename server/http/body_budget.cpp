#include "server/http/body_budget.h"

#include <functional>
#include <utility>

namespace quire {

namespace {

// The part of the bound that only small bodies may use.
constexpr std::int64_t kSmallShare = 8;

}  // namespace

bool BodyBudget::Upload::Larger::operator()(const Upload* a, const Upload* b) const {
  return a->num_bytes_ != b->num_bytes_ ? a->num_bytes_ > b->num_bytes_ : std::less<const Upload*>()(a, b);
}

BodyBudget::Upload::Upload(BodyBudget& budget, std::string client, std::function<void()> cut)
    : budget_(budget), client_(std::move(client)), cut_(std::move(cut)) {
  const std::lock_guard lock(budget_.mutex_);
  ++budget_.clients_[client_].num_uploads;
  budget_.enlist(*this);
}

BodyBudget::Upload::~Upload() {
  const std::lock_guard lock(budget_.mutex_);
  if (unfinished_ && !was_cut_) budget_.withdraw(*this);
  if (was_cut_) budget_.num_bytes_cut_ -= num_bytes_;
  budget_.charge(*this, -num_bytes_);
  const auto client = budget_.clients_.find(client_);
  if (--client->second.num_uploads == 0) budget_.clients_.erase(client);
}

bool BodyBudget::Upload::take(std::int64_t num_bytes, std::int64_t bound) {
  const std::lock_guard lock(budget_.mutex_);
  if (was_cut_) return false;
  budget_.withdraw(*this);
  budget_.charge(*this, num_bytes);
  budget_.enlist(*this);
  return budget_.make_room(*this, bound);
}

void BodyBudget::Upload::complete() {
  const std::lock_guard lock(budget_.mutex_);
  if (unfinished_ && !was_cut_) budget_.withdraw(*this);
  unfinished_ = false;
}

bool BodyBudget::Upload::was_cut() const {
  const std::lock_guard lock(budget_.mutex_);
  return was_cut_;
}

std::int64_t BodyBudget::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

std::int64_t BodyBudget::num_cut() const {
  const std::lock_guard lock(mutex_);
  return num_cut_;
}

void BodyBudget::charge(Upload& upload, std::int64_t num_bytes) {
  const auto client = clients_.find(upload.client_);
  unrank(*client);
  num_bytes_ += num_bytes;
  client->second.num_bytes += num_bytes;
  upload.num_bytes_ += num_bytes;
  rank(*client);
}

void BodyBudget::enlist(Upload& upload) {
  const auto client = clients_.find(upload.client_);
  client->second.unfinished.insert(&upload);
  rank(*client);
}

void BodyBudget::withdraw(Upload& upload) {
  const auto client = clients_.find(upload.client_);
  unrank(*client);
  client->second.unfinished.erase(&upload);
  rank(*client);
}

void BodyBudget::rank(const Clients::value_type& client) {
  if (!client.second.unfinished.empty()) heaviest_.insert({client.second.num_bytes, client.first});
}

void BodyBudget::unrank(const Clients::value_type& client) {
  heaviest_.erase({client.second.num_bytes, client.first});
}

bool BodyBudget::fits(const Upload& upload, std::int64_t bound) const {
  const std::int64_t kept = num_bytes_ - num_bytes_cut_;
  // A body that is alone may use all of it.
  const bool shares = upload.num_bytes_ > kSmallBody && kept > upload.num_bytes_;
  return kept <= (shares ? bound - bound / kSmallShare : bound);
}

bool BodyBudget::make_room(Upload& upload, std::int64_t bound) {
  while (!fits(upload, bound)) {
    // `upload` is unfinished, so there is a heaviest client.
    Upload* const largest = *clients_.find(heaviest_.rbegin()->second)->second.unfinished.begin();
    largest->was_cut_ = true;
    withdraw(*largest);
    num_bytes_cut_ += largest->num_bytes_;
    ++num_cut_;
    if (largest == &upload) return false;
    largest->cut_();
  }
  return true;
}

}  // namespace quire
