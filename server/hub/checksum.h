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
  // Of the kind that `expected` is, by its length (64 or 40 digits), for a file of `size` bytes.
  Checksum(std::string_view expected, std::int64_t size);

  void add(std::string_view bytes);
  // The digits. Nothing can be added afterwards.
  std::string finish();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

}  // namespace quire::hub
