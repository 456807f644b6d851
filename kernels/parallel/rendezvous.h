// Rendezvous: a point that each of a fixed number of threads leaves once all have reached it. Any thread, each once a
// meeting. Invariant: a thread that cannot come gives the meeting up, and then no thread waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <stdexcept>

namespace quire {

// Thrown where a meeting cannot be met because another thread failed.
class RendezvousGivenUp : public std::runtime_error {
 public:
  RendezvousGivenUp() : std::runtime_error("another device failed") {}
};

class Rendezvous {
 public:
  explicit Rendezvous(int num_threads) : num_threads_(num_threads) {}

  // Throws RendezvousGivenUp.
  void meet();
  void give_up();
  // Between meetings, when no thread is in meet().
  void restart();

 private:
  const int num_threads_;
  std::atomic<int> num_arrived_{0};
  std::atomic<std::uint32_t> meeting_{0};
  std::atomic<bool> is_given_up_{false};
};

}  // namespace quire
