#include "server/ops/keys/key_ring.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/files/regular_file.h"
#include "core/base/message_text.h"
#include "core/base/result.h"
#include "server/api/common/encodings.h"

namespace quire {

namespace {

Sha256 from_hex(const ApiKeyOptions& options) {
  const auto digit = [&](char c) -> unsigned {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
    if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
    throw StartupError(fmt::format("security.keys: the sha256 of '{}' must be 64 hexadecimal digits", options.name));
  };
  Sha256 hash{};
  for (std::size_t i = 0; i < hash.size(); ++i) {
    // The end of a shorter text reads as '\0', which is no digit.
    const char high = i * 2 < options.sha256.size() ? options.sha256[i * 2] : '\0';
    const char low = i * 2 + 1 < options.sha256.size() ? options.sha256[i * 2 + 1] : '\0';
    hash[i] = static_cast<unsigned char>(digit(high) << 4 | digit(low));
  }
  if (options.sha256.size() != hash.size() * 2) digit('\0');
  return hash;
}

std::string plain_key(const ApiKeyOptions& options) {
  std::string key;
  if (!options.file.empty()) {
    auto text = read_secret_file(options.file);
    if (!text) {
      throw StartupError(
          fmt::format("security.keys: the file '{}' of the key '{}' {}", options.file, options.name, text.error()));
    }
    key = *std::move(text);
  } else if (const char* value = std::getenv(options.env.c_str())) {
    key = value;
  }
  if (key.empty()) {
    throw StartupError(
        options.file.empty()
            ? fmt::format("security.keys: the environment variable '{}' of the key '{}' is not set", options.env,
                          options.name)
            : fmt::format("security.keys: the file '{}' of the key '{}' is empty", options.file, options.name));
  }
  return key;
}

}  // namespace

KeyRing::KeyRing(const std::vector<ApiKeyOptions>& options) {
  keys_.reserve(options.size());
  for (const ApiKeyOptions& each : options) {
    const Sha256 hash = each.sha256.empty() ? sha256(plain_key(each)) : from_hex(each);
    const auto same = std::find_if(keys_.begin(), keys_.end(), [&](const ApiKey& key) { return key.hash == hash; });
    if (same != keys_.end()) {
      throw StartupError(fmt::format("security.keys: '{}' and '{}' are the same key", same->name, each.name));
    }
    keys_.push_back(ApiKey{each.name, hash, each.admin, each.priority, each.quota});
  }
}

const ApiKey* KeyRing::find(std::string_view presented) const {
  const Sha256 hash = sha256(presented);
  const ApiKey* found = nullptr;
  for (const ApiKey& key : keys_) {
    if (CRYPTO_memcmp(key.hash.data(), hash.data(), hash.size()) == 0) found = &key;
  }
  return found;
}

const ApiKey* KeyRing::named(std::string_view name) const {
  const auto found = std::find_if(keys_.begin(), keys_.end(), [&](const ApiKey& key) { return key.name == name; });
  return found == keys_.end() ? nullptr : &*found;
}

std::string hash_of_key(std::string_view key) {
  return hex_digits(sha256(key));
}

}  // namespace quire
