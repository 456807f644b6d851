#include "server/api/common/operation.h"

#include <sys/random.h>

#include <array>
#include <cstddef>

#include "kernels/check.h"

namespace quire {

namespace {

// The system's random bytes, fetched some at a time. One thread at a time.
class RandomBytes {
 public:
  unsigned char next() {
    if (used_ == bytes_.size()) {
      // Requests of up to 256 bytes are answered whole (getrandom(2)).
      const ssize_t count = ::getrandom(bytes_.data(), bytes_.size(), 0);
      QUIRE_CHECK(count == static_cast<ssize_t>(bytes_.size()), "the system gives random bytes");
      used_ = 0;
    }
    return bytes_[used_++];
  }

 private:
  std::array<unsigned char, 256> bytes_{};
  std::size_t used_ = bytes_.size();
};

}  // namespace

std::string make_id(std::string_view prefix) {
  constexpr std::string_view kAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz";
  // The largest multiple of the alphabet's size that a byte holds: below it every letter is equally likely.
  constexpr std::size_t kFair = 256 / kAlphabet.size() * kAlphabet.size();
  // An id gives access to its stored object, so it must not be predictable from earlier ones.
  thread_local RandomBytes random;
  std::string id(prefix);
  const std::size_t size = prefix.size() + 24;
  while (id.size() < size) {
    const std::size_t value = random.next();
    if (value < kFair) id += kAlphabet[value % kAlphabet.size()];
  }
  return id;
}

void append_sse(std::string& out, std::string_view name, std::string_view data) {
  if (!name.empty()) {
    out += "event: ";
    out += name;
    out += '\n';
  }
  out += "data: ";
  out += data;
  out += "\n\n";
}

}  // namespace quire
