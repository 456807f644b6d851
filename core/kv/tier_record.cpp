#include "core/kv/tier_record.h"

#include <xxhash.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

namespace quire {

namespace {

constexpr std::uint32_t kMagic = 0x424B5651;  // "QVKB"
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kMaxSaltBytes = 1 << 16;
constexpr std::uint32_t kMaxTokens = 1 << 16;

// As it lies in the file: 64-bit words first, so that no padding is written. The machine's byte order; a file of
// another one has another magic.
struct Head {
  std::uint64_t checksum;  // of everything after this word
  std::uint64_t fingerprint;
  std::uint64_t id;
  std::uint64_t parent;
  std::uint64_t payload_bytes;
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t salt_bytes;
  std::uint32_t num_tokens;
};
static_assert(sizeof(Head) == 56, "no padding");

struct Closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Closer>;

struct StateFreer {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

std::uint64_t checksum_of(const Head& head, const TierRecord& record) {
  const std::unique_ptr<XXH3_state_t, StateFreer> state(XXH3_createState());
  XXH3_64bits_reset(state.get());
  const auto add = [&](const void* data, std::size_t size) { XXH3_64bits_update(state.get(), data, size); };
  add(reinterpret_cast<const char*>(&head) + sizeof head.checksum, sizeof head - sizeof head.checksum);
  add(record.salt.data(), record.salt.size());
  add(record.tokens.data(), record.tokens.size() * sizeof(TokenId));
  add(record.payload.data(), record.payload.size());
  return XXH3_64bits_digest(state.get());
}

bool write_all(std::FILE* file, const void* data, std::size_t size) {
  return size == 0 || std::fwrite(data, 1, size, file) == size;
}

bool read_all(std::FILE* file, void* data, std::size_t size) {
  return size == 0 || std::fread(data, 1, size, file) == size;
}

// Nothing is allocated that the file's size does not justify.
bool believable(const Head& head, std::uint64_t file_bytes) {
  if (head.magic != kMagic || head.version != kVersion || head.id == 0) return false;
  if (head.salt_bytes > kMaxSaltBytes || head.num_tokens > kMaxTokens || head.payload_bytes > file_bytes) return false;
  return sizeof head + head.salt_bytes + head.num_tokens * sizeof(TokenId) + head.payload_bytes == file_bytes;
}

struct Opened {
  File file;
  Head head;
  TierRecord record;
};

std::optional<Opened> open_record(const std::filesystem::path& path) {
  std::error_code error;
  const std::uint64_t file_bytes = std::filesystem::file_size(path, error);
  if (error || file_bytes < sizeof(Head)) return std::nullopt;
  Opened opened{File(std::fopen(path.c_str(), "rb")), {}, {}};
  if (opened.file == nullptr || !read_all(opened.file.get(), &opened.head, sizeof(Head))) return std::nullopt;
  const Head& head = opened.head;
  if (!believable(head, file_bytes)) return std::nullopt;
  opened.record.fingerprint = head.fingerprint;
  opened.record.id = head.id;
  opened.record.parent = head.parent;
  opened.record.salt.resize(head.salt_bytes);
  opened.record.tokens.resize(head.num_tokens);
  if (!read_all(opened.file.get(), opened.record.salt.data(), head.salt_bytes) ||
      !read_all(opened.file.get(), opened.record.tokens.data(), head.num_tokens * sizeof(TokenId))) {
    return std::nullopt;
  }
  return opened;
}

}  // namespace

std::int64_t record_bytes(const TierRecord& record) {
  return static_cast<std::int64_t>(sizeof(Head) + record.salt.size() + record.tokens.size() * sizeof(TokenId) +
                                   record.payload.size());
}

bool write_record(const std::filesystem::path& path, const TierRecord& record) {
  Head head{.checksum = 0,
            .fingerprint = record.fingerprint,
            .id = record.id,
            .parent = record.parent,
            .payload_bytes = record.payload.size(),
            .magic = kMagic,
            .version = kVersion,
            .salt_bytes = static_cast<std::uint32_t>(record.salt.size()),
            .num_tokens = static_cast<std::uint32_t>(record.tokens.size())};
  head.checksum = checksum_of(head, record);
  std::filesystem::path beside = path;
  beside += ".part";
  File file(std::fopen(beside.c_str(), "wb"));
  bool written = file != nullptr && write_all(file.get(), &head, sizeof head) &&
                 write_all(file.get(), record.salt.data(), record.salt.size()) &&
                 write_all(file.get(), record.tokens.data(), record.tokens.size() * sizeof(TokenId)) &&
                 write_all(file.get(), record.payload.data(), record.payload.size()) && std::fflush(file.get()) == 0;
  file.reset();
  std::error_code error;
  if (written) {
    std::filesystem::rename(beside, path, error);
    written = !error;
  }
  if (!written) std::filesystem::remove(beside, error);
  return written;
}

std::optional<TierRecord> read_record_head(const std::filesystem::path& path) {
  std::optional<Opened> opened = open_record(path);
  if (!opened) return std::nullopt;
  return std::move(opened->record);
}

std::optional<TierRecord> read_record(const std::filesystem::path& path) {
  std::optional<Opened> opened = open_record(path);
  if (!opened) return std::nullopt;
  TierRecord& record = opened->record;
  record.payload.resize(opened->head.payload_bytes);
  if (!read_all(opened->file.get(), record.payload.data(), record.payload.size())) return std::nullopt;
  if (checksum_of(opened->head, record) != opened->head.checksum) return std::nullopt;
  return std::move(record);
}

}  // namespace quire
