// ChainKey: names a block by content: its tokens and everything before them, from a root that stands for the model, its
// arithmetic, an adapter, media and a salt. The same content has the same key in every tier, process and machine of one
// byte order. A key finds candidates; identity is decided by comparing parents and tokens. Value types; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/ids.h"

namespace quire {

struct ChainKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const ChainKey&) const = default;
};

// 32 hexadecimal digits, as names of files and fingerprints show a key.
std::string hex_digits(const ChainKey& key);

// The key of a chain's beginning. `identity` names all that its blocks depend on besides tokens.
ChainKey root_key(std::string_view identity);

// The key of a block with these tokens after a block or root with the key `parent`.
using BlockHash = ChainKey (*)(const ChainKey& parent, std::span<const TokenId> tokens);
ChainKey content_hash(const ChainKey& parent, std::span<const TokenId> tokens);

}  // namespace quire
