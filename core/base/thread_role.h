// ThreadRole: makes "Engine thread only" checkable by the compiler. Any thread.
// A function that needs a role is annotated QUIRE_REQUIRES(role), a member that only such functions touch
// QUIRE_GUARDED_BY(role), a pointer's target QUIRE_POINTEE_GUARDED_BY(role); the thread's entry point calls
// role.assume(). Clang's thread-safety analysis rejects all other access (tests/lint/threads.sh); with other compilers
// the annotations vanish.
#pragma once

#if defined(__clang__)
#define QUIRE_CAPABILITY(name) __attribute__((capability(name)))
#define QUIRE_REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#define QUIRE_ASSUMES(...) __attribute__((assert_capability(__VA_ARGS__)))
#define QUIRE_GUARDED_BY(role) __attribute__((guarded_by(role)))
#define QUIRE_POINTEE_GUARDED_BY(role) __attribute__((pt_guarded_by(role)))
#else
#define QUIRE_CAPABILITY(name)
#define QUIRE_REQUIRES(...)
#define QUIRE_ASSUMES(...)
#define QUIRE_GUARDED_BY(role)
#define QUIRE_POINTEE_GUARDED_BY(role)
#endif

namespace quire {

class QUIRE_CAPABILITY("thread role") ThreadRole {
 public:
  // The caller asserts that this thread has the role: the thread's own loop, or a test that acts as that thread.
  void assume() const QUIRE_ASSUMES(this) {}
};

inline constexpr ThreadRole kEngineThread;
inline constexpr ThreadRole kKvIoThread;

}  // namespace quire
