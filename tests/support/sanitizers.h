// Which sanitizer a test was built for: what is single-threaded and long need not take half an hour under
// ThreadSanitizer. Immutable facts; any thread.
#pragma once

namespace quire::test {

#ifdef __SANITIZE_THREAD__
inline constexpr bool kUnderThreadSanitizer = true;
#else
inline constexpr bool kUnderThreadSanitizer = false;
#endif

}  // namespace quire::test
