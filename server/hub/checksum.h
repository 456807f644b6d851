// Checksum: a file's checksum as a hub names it, computed piece by piece: SHA-256 of its bytes, or git's hash of a blob
// (SHA-1 of a head with its size, and the bytes). One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace quire::hub {

class Checksum {
 public:
  // The kind follows from the length of `expected` (64 or 40 digits). `size`: the file's bytes.
  Checksum(std::string_view expected, std::int64_t size);

  void add(std::string_view bytes);
  // Returns the digits. Nothing can be added afterwards.
  std::string finish();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

}  // namespace quire::hub
