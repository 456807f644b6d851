// KeyRing: the API keys, as hashes. Immutable after construction; any thread. Looking a key up costs one hash and one
// comparison with each key that exists, whether or not it is found, so that its time reveals nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/ops/keys/security_options.h"

namespace quire {

struct ApiKey {
  std::string name;
  std::array<unsigned char, 32> hash{};  // SHA-256
  bool admin = false;
  std::int32_t priority = 0;  // the most urgent (lowest) that its requests may ask for
  KeyQuota quota;
};

class KeyRing {
 public:
  KeyRing() = default;
  // Reads the variables and files that the options name. Throws StartupError for a variable or file that is absent or
  // empty, or one key under two names.
  explicit KeyRing(const std::vector<ApiKeyOptions>& options);

  bool empty() const { return keys_.empty(); }
  const std::vector<ApiKey>& all() const { return keys_; }
  // Null if there is no such key.
  const ApiKey* find(std::string_view presented) const;
  const ApiKey* named(std::string_view name) const;

 private:
  std::vector<ApiKey> keys_;
};

// Hash of a key as ApiKeyOptions::sha256 writes it: 64 hexadecimal digits.
std::string hash_of_key(std::string_view key);

}  // namespace quire
