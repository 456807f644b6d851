// QUIRE_CHECK: a broken invariant aborts with file and line. Any thread.
// Nothing that a client, a file or a configuration sends may reach one; those are Result<T> or StartupError.
// (Named with a prefix because Catch2 owns CHECK.)
#pragma once

namespace quire {

[[noreturn]] void check_failed(const char* condition, const char* reason, const char* file, int line);

}  // namespace quire

#define QUIRE_CHECK(condition, reason) \
  ((condition) ? static_cast<void>(0) : ::quire::check_failed(#condition, (reason), __FILE__, __LINE__))
