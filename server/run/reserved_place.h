// ReservedPlace: a place in a model's queue, taken before the request is parsed. Any thread, one at a time. Invariant:
// the queue outlives its ticket.
#pragma once

#include <memory>
#include <utility>

#include "core/engine/request_queue.h"

namespace quire {

class ReservedPlace {
 public:
  ReservedPlace() = default;
  ReservedPlace(std::shared_ptr<RequestQueue> queue, QueueTicket ticket)
      : queue_(std::move(queue)), ticket_(std::move(ticket)) {}
  ReservedPlace(ReservedPlace&&) noexcept = default;
  ReservedPlace& operator=(ReservedPlace&& other) noexcept {
    ticket_ = std::move(other.ticket_);
    queue_ = std::move(other.queue_);
    return *this;
  }
  ~ReservedPlace() = default;

  bool has() const { return queue_ != nullptr; }
  // The ticket if it belongs to this queue, else an empty one.
  QueueTicket take(const std::shared_ptr<RequestQueue>& queue) {
    return queue_ == queue ? std::move(ticket_) : QueueTicket();
  }

 private:
  std::shared_ptr<RequestQueue> queue_;
  QueueTicket ticket_;
};

}  // namespace quire
