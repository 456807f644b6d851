// NamedMapping: the name of a mapped file, for as long as it is mapped, so that the signal of a page that is gone can
// be explained. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace quire {

class NamedMapping {
 public:
  NamedMapping() = default;
  // Beyond a thousand mappings the name is not kept.
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

// From now on, reading a page of a named mapping whose file was cut short ends the process with this exit code, after
// one line on stderr that names the file. Once, before threads start.
void end_when_truncated(int exit_code);

// Writes to stderr from a signal handler, or before an abort. A reader that does not drain is waited for half a second.
void write_last_words(const char* text);

}  // namespace quire
