// NamedMapping: the name of a mapped file while it is mapped, so that the signal for a missing page can be explained.
// Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace quire {

class NamedMapping {
 public:
  NamedMapping() = default;
  // Only the first thousand mappings have a name.
  NamedMapping(std::span<const std::byte> bytes, const std::string& path);
  ~NamedMapping();
  NamedMapping(NamedMapping&& other) noexcept : entry_(std::exchange(other.entry_, -1)) {}
  NamedMapping& operator=(NamedMapping&& other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }

 private:
  int entry_ = -1;  // index in the table; -1: none
};

// From now on, reading a page of a named mapping whose file was truncated ends the process with this exit code, after a
// line on stderr that names the file. Once, before threads start.
void end_when_truncated(int exit_code);

// Writes to stderr from a signal handler, or before an abort. Waits at most half a second for a reader that does not
// drain.
void write_last_words(const char* text);

}  // namespace quire
