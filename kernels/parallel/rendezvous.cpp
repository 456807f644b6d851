#include "kernels/parallel/rendezvous.h"

namespace quire {

void Rendezvous::meet() {
  // The meeting is read before the flag, which give_up() sets before it ends the meeting: one of both is seen.
  const std::uint32_t meeting = meeting_.load();
  if (is_given_up_.load()) throw RendezvousGivenUp();
  if (num_arrived_.fetch_add(1) + 1 == num_threads_) {
    num_arrived_.store(0);
    meeting_.fetch_add(1);
    meeting_.notify_all();
    return;
  }
  while (meeting_.load() == meeting)
    meeting_.wait(meeting);
  if (is_given_up_.load()) throw RendezvousGivenUp();
}

void Rendezvous::give_up() {
  is_given_up_.store(true);
  meeting_.fetch_add(1);
  meeting_.notify_all();
}

void Rendezvous::restart() {
  num_arrived_.store(0);
  is_given_up_.store(false);
}

}  // namespace quire
