// The sanitizer that a test was built with: long single-threaded tests are shortened under ThreadSanitizer. Immutable
// facts; any thread.
#pragma once

namespace quire::test {

#ifdef __SANITIZE_THREAD__
inline constexpr bool kUnderThreadSanitizer = true;
#else
inline constexpr bool kUnderThreadSanitizer = false;
#endif

}  // namespace quire::test
