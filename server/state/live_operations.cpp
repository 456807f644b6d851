#include "server/state/live_operations.h"

#include "server/wire/mailbox.h"

namespace quire {

void LiveOperations::add(const std::shared_ptr<Mailbox>& mailbox) {
  const std::lock_guard lock(mutex_);
  live_.insert(mailbox);
}

void LiveOperations::remove(const std::shared_ptr<Mailbox>& mailbox) {
  const std::lock_guard lock(mutex_);
  live_.erase(mailbox);
}

std::size_t LiveOperations::count() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

std::size_t LiveOperations::cut(const Error& error) {
  const std::lock_guard lock(mutex_);
  for (const auto& mailbox : live_)
    mailbox->interrupt(error);
  return live_.size();
}

void LiveOperations::nudge() {
  const std::lock_guard lock(mutex_);
  for (const auto& mailbox : live_)
    mailbox->nudge();
}

}  // namespace quire
