// What spinning threads and stores past the caches need of the processor's architecture. Any thread.
#pragma once

namespace quire {

// One round of a spinning loop: leaves the core's resources to its other thread, and waits some ten nanoseconds.
inline void pause_spinning() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // YIELD does nothing on processors without a second thread
#endif
}

// What went past the caches is seen before what is stored afterwards. On arm64 no such store is used.
inline void fence_past_caches() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

}  // namespace quire
