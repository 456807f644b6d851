// Instructions for spinning threads and for stores past the caches, by architecture. Any thread.
#pragma once

namespace quire {

// A pause in a spinning loop: leaves the core's resources to its other thread for some ten nanoseconds.
inline void pause_spinning() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // YIELD does nothing on processors without a second thread
#endif
}

// Orders stores past the caches before later stores. On arm64 no such store is used.
inline void fence_past_caches() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

}  // namespace quire
