// TierRecord: one KV block as a file, or as a value of a shared store: its tokens, its place, its bytes. One thread at
// a time. A file is written under another name and renamed when complete; leftovers of a crash are recognised and
// removed. A record is accepted only if its sizes add up and the checksum over all of it is right. Nothing is synced to
// the disk: a killed process loses nothing, and after a power cut the checksum finds torn files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/ids.h"
#include "core/content/media_names.h"
#include "core/kv/index/chain_key.h"

namespace quire {

using BlockPayload = std::shared_ptr<const std::vector<std::byte>>;

struct TierRecord {
  ChainKey fingerprint;        // identifies model, arithmetic and block layout
  ChainKey key;                // names the record in every folder
  ChainKey parent;             // the key of the block before it, or of the root
  std::uint64_t number = 0;    // random id of this write, to notice replaced files
  std::uint32_t position = 0;  // index in its chain; 0: right after the root
  std::string salt{};          // only at position 0
  PortableContent content{};
  BlockPayload payload{};
};

// Size of the record's file; without a payload, the size of the rest.
std::int64_t record_bytes(const TierRecord& record);

// The record as bytes: this, then those of the payload.
std::string record_head(const TierRecord& record);
// Parses a record; nullopt if a single bit of it is wrong.
std::optional<TierRecord> parse_record(std::span<const std::byte> bytes);

// Returns the error that prevented the write; no file is then left at `path`.
std::error_code write_record(const std::filesystem::path& path, const TierRecord& record);

// The record without its payload: sizes are checked against the file's, the checksum is not.
std::optional<TierRecord> read_record_head(const std::filesystem::path& path);

// Reads the whole record; nullopt if a single bit of it is wrong.
std::optional<TierRecord> read_record(const std::filesystem::path& path);

}  // namespace quire
