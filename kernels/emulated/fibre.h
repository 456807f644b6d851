// Fibres: stacks that one thread switches between, some nanoseconds a switch on x86-64, ucontext elsewhere. One thread
// at a time. Invariant: an entry function never returns; the last thing it does is switch away.
#pragma once

#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace quire::gpu {

class Fibre {
 public:
  using Entry = void (*)(void* argument);

  Fibre() = default;  // the stack that runs now
  // stack: `bytes` of memory that outlives the fibre.
  Fibre(std::byte* stack, std::size_t bytes, Entry entry, void* argument);
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  // Switches to `to` and returns when something switches back. Called on this fibre only.
  void switch_to(Fibre& to);

 private:
  void arrived();

#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  static void start(unsigned high, unsigned low);
  ucontext_t context_{};
#endif
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  // A stack's bounds, for AddressSanitizer.
  [[maybe_unused]] const void* stack_ = nullptr;
  [[maybe_unused]] std::size_t stack_bytes_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;
  Fibre* came_from_ = nullptr;

  friend void enter_fibre(Fibre* fibre);
};

}  // namespace quire::gpu
