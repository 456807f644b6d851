// KeptChain: a conversation's tokens with the bytes of its blocks, in host memory. ChainFile's functions: the same as a
// file. Any thread. A file is written beside its place, synced and renamed when complete; it is accepted only if its
// sizes add up and its checksum over all of it is right. Invariant: nothing is allocated that the file's size does not
// justify, and no link is followed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/content/media_names.h"
#include "core/kv/index/chain_key.h"
#include "core/kv/tiers/tier_record.h"

namespace quire {

struct KeptChain {
  ChainKey fingerprint{};                // identifies model, arithmetic and block layout
  std::string salt{};                    // salt of the chain's prefixes
  PortableContent content{};             // full blocks
  std::vector<BlockPayload> payloads{};  // for each block: its bytes, then its state or part
};

// The bytes of the file.
std::int64_t chain_bytes(const KeptChain& chain);

Result<void> write_chain(const std::filesystem::path& path, const KeptChain& chain);
Result<KeptChain> read_chain(const std::filesystem::path& path, std::int64_t max_bytes);

}  // namespace quire
