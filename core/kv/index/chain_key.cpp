#include "core/kv/index/chain_key.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <array>
#include <cstring>

namespace quire {

static_assert(sizeof(TokenId) == sizeof(std::int32_t), "tokens are compared and hashed as plain 32-bit words");

namespace {

constexpr std::size_t kMostTokensAtOnce = 64;

ChainKey key_of(XXH128_hash_t hash) {
  return {hash.low64, hash.high64};
}

}  // namespace

std::string hex_digits(const ChainKey& key) {
  return fmt::format("{:016x}{:016x}", key.high, key.low);
}

ChainKey root_key(std::string_view identity) {
  return key_of(XXH3_128bits(identity.data(), identity.size()));
}

ChainKey content_hash(const ChainKey& parent, std::span<const TokenId> tokens) {
  if (tokens.size() > kMostTokensAtOnce) {
    return content_hash(content_hash(parent, tokens.first(kMostTokensAtOnce)), tokens.subspan(kMostTokensAtOnce));
  }
  struct {
    ChainKey parent;
    std::array<TokenId, kMostTokensAtOnce> tokens;
  } hashed;
  hashed.parent = parent;
  std::memcpy(hashed.tokens.data(), tokens.data(), tokens.size_bytes());
  return key_of(XXH3_128bits(&hashed, sizeof parent + tokens.size_bytes()));
}

}  // namespace quire
