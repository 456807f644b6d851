// LiveOperations: the operations in flight, so that a drain can count and cut them. Any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "core/base/result.h"

namespace quire {

class Mailbox;

class LiveOperations {
 public:
  void add(const std::shared_ptr<Mailbox>& mailbox);
  void remove(const std::shared_ptr<Mailbox>& mailbox);
  std::size_t count() const;
  // Ends all operations with this error. Returns their number.
  std::size_t cut(const Error& error);
  // Wakes all operations.
  void nudge();

 private:
  mutable std::mutex mutex_;
  std::unordered_set<std::shared_ptr<Mailbox>> live_;
};

}  // namespace quire
