#include "kernels/parallel/rendezvous.h"

namespace quire {

void Rendezvous::meet() {
  // The round is read before the flag, which give_up() sets before it ends the round: one of both is seen.
  const std::uint32_t round = round_.load();
  if (is_given_up_.load()) throw RendezvousGivenUp();
  if (num_arrived_.fetch_add(1) + 1 == num_threads_) {
    num_arrived_.store(0);
    round_.fetch_add(1);
    round_.notify_all();
    return;
  }
  while (round_.load() == round)
    round_.wait(round);
  if (is_given_up_.load()) throw RendezvousGivenUp();
}

void Rendezvous::give_up() {
  is_given_up_.store(true);
  round_.fetch_add(1);
  round_.notify_all();
}

void Rendezvous::restart() {
  num_arrived_.store(0);
  is_given_up_.store(false);
}

}  // namespace quire
