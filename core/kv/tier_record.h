// TierRecord: one KV block as a file: what it holds, where it belongs, its bytes. One thread at a time.
// A file is written beside its place and moved there whole; whatever a crash leaves is recognised and removed. A record
// is believed only where its sizes add up and its checksum over all of it is right. Nothing is synced to the disk: a
// killed process loses nothing that it wrote, and what a power cut tears the checksum finds; a cache is made again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/ids.h"

namespace quire {

struct TierRecord {
  std::uint64_t fingerprint = 0;  // of the model and the layout of a block
  std::uint64_t id = 0;           // unique in its directory; not 0
  std::uint64_t parent = 0;       // the record of the block before it; 0: a first block
  std::string salt;               // of a first block
  std::vector<TokenId> tokens;
  std::vector<std::byte> payload;
};

// The size of its file.
std::int64_t record_bytes(const TierRecord& record);

// False where the file could not be written whole; nothing is then left at `path`.
bool write_record(const std::filesystem::path& path, const TierRecord& record);

// The record without its payload: sizes are checked against the file's, the checksum is not.
std::optional<TierRecord> read_record_head(const std::filesystem::path& path);

// The whole record; nothing where a single bit of it is wrong.
std::optional<TierRecord> read_record(const std::filesystem::path& path);

}  // namespace quire
