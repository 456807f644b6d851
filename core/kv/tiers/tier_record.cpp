#include "core/kv/tiers/tier_record.h"

#include <fcntl.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

#include "core/kv/tiers/stdio_file.h"

namespace quire {

namespace {

constexpr std::uint32_t kMagic = 0x424B5651;  // "QVKB"
constexpr std::uint32_t kVersion = 2;
constexpr std::uint32_t kMaxSaltBytes = 1 << 16;
constexpr std::uint32_t kMaxTokens = 1 << 16;

// The file's head: 64-bit words first, so that no padding is written, in the machine's byte order; the magic number
// differs on machines with another order.
struct Head {
  std::uint64_t checksum;  // covers everything after this word
  ChainKey fingerprint;
  ChainKey key;
  ChainKey parent;
  std::uint64_t number;
  std::uint64_t payload_bytes;
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t salt_bytes;
  std::uint32_t num_tokens;
  std::uint32_t position;
  std::uint32_t num_media;
};
static_assert(sizeof(Head) == 96, "no padding");

std::uint64_t checksum_of(const Head& head, const TierRecord& record) {
  const HashState state(XXH3_createState());
  XXH3_64bits_reset(state.get());
  const auto add = [&](const void* data, std::size_t size) { XXH3_64bits_update(state.get(), data, size); };
  add(reinterpret_cast<const char*>(&head) + sizeof head.checksum, sizeof head - sizeof head.checksum);
  add(record.salt.data(), record.salt.size());
  add(record.content.tokens.data(), record.content.tokens.size() * sizeof(TokenId));
  add(record.content.media.data(), record.content.media.size() * sizeof(MediaRef));
  add(record.payload->data(), record.payload->size());
  return XXH3_64bits_digest(state.get());
}

Head head_of(const TierRecord& record) {
  Head head{.checksum = 0,
            .fingerprint = record.fingerprint,
            .key = record.key,
            .parent = record.parent,
            .number = record.number,
            .payload_bytes = record.payload->size(),
            .magic = kMagic,
            .version = kVersion,
            .salt_bytes = static_cast<std::uint32_t>(record.salt.size()),
            .num_tokens = static_cast<std::uint32_t>(record.content.tokens.size()),
            .position = record.position,
            .num_media = static_cast<std::uint32_t>(record.content.media.size())};
  head.checksum = checksum_of(head, record);
  return head;
}

// The record of a head that passed the checks, without payload.
TierRecord record_of(const Head& head) {
  TierRecord record{.fingerprint = head.fingerprint,
                    .key = head.key,
                    .parent = head.parent,
                    .number = head.number,
                    .position = head.position};
  record.salt.resize(head.salt_bytes);
  record.content.tokens.resize(head.num_tokens);
  record.content.media.resize(head.num_media);
  return record;
}

// Checks the sizes against the file's, so that nothing is allocated that the file does not justify.
bool believable(const Head& head, std::uint64_t file_bytes) {
  if (head.magic != kMagic || head.version != kVersion || head.num_media > head.num_tokens) return false;
  if (head.salt_bytes > kMaxSaltBytes || head.num_tokens > kMaxTokens || head.payload_bytes > file_bytes) return false;
  return sizeof head + head.salt_bytes + head.num_tokens * sizeof(TokenId) + head.num_media * sizeof(MediaRef) +
             head.payload_bytes ==
         file_bytes;
}

struct Opened {
  StdioFile file;
  Head head;
  TierRecord record;
};

std::optional<Opened> open_record(const std::filesystem::path& path) {
  std::error_code error;
  const std::uint64_t file_bytes = std::filesystem::file_size(path, error);
  if (error || file_bytes < sizeof(Head)) return std::nullopt;
  Opened opened{StdioFile(std::fopen(path.c_str(), "rb")), {}, {}};
  if (opened.file == nullptr || !read_all(opened.file.get(), &opened.head, sizeof(Head))) return std::nullopt;
  const Head& head = opened.head;
  if (!believable(head, file_bytes)) return std::nullopt;
  opened.record = record_of(head);
  if (!read_all(opened.file.get(), opened.record.salt.data(), head.salt_bytes) ||
      !read_all(opened.file.get(), opened.record.content.tokens.data(), head.num_tokens * sizeof(TokenId)) ||
      !read_all(opened.file.get(), opened.record.content.media.data(), head.num_media * sizeof(MediaRef))) {
    return std::nullopt;
  }
  return opened;
}

}  // namespace

std::int64_t record_bytes(const TierRecord& record) {
  return static_cast<std::int64_t>(sizeof(Head) + record.salt.size() + record.content.tokens.size() * sizeof(TokenId) +
                                   record.content.media.size() * sizeof(MediaRef) +
                                   (record.payload == nullptr ? 0 : record.payload->size()));
}

std::string record_head(const TierRecord& record) {
  const Head head = head_of(record);
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += record.salt;
  const PortableContent& content = record.content;
  bytes.append(reinterpret_cast<const char*>(content.tokens.data()), content.tokens.size() * sizeof(TokenId));
  bytes.append(reinterpret_cast<const char*>(content.media.data()), content.media.size() * sizeof(MediaRef));
  return bytes;
}

std::optional<TierRecord> parse_record(std::span<const std::byte> bytes) {
  Head head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (!believable(head, bytes.size())) return std::nullopt;
  TierRecord record = record_of(head);
  bytes = bytes.subspan(sizeof head);
  const auto take = [&bytes](void* to, std::size_t size) {
    if (size > 0) std::memcpy(to, bytes.data(), size);
    bytes = bytes.subspan(size);
  };
  take(record.salt.data(), record.salt.size());
  take(record.content.tokens.data(), record.content.tokens.size() * sizeof(TokenId));
  take(record.content.media.data(), record.content.media.size() * sizeof(MediaRef));
  record.payload = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  if (checksum_of(head, record) != head.checksum) return std::nullopt;
  return record;
}

std::error_code write_record(const std::filesystem::path& path, const TierRecord& record) {
  const Head head = head_of(record);
  const PortableContent& content = record.content;
  std::filesystem::path beside = path;
  beside += ".part";
  errno = 0;
  const int descriptor = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  StdioFile file(descriptor < 0 ? nullptr : ::fdopen(descriptor, "wb"));
  const bool written = file != nullptr && write_all(file.get(), &head, sizeof head) &&
                       write_all(file.get(), record.salt.data(), record.salt.size()) &&
                       write_all(file.get(), content.tokens.data(), content.tokens.size() * sizeof(TokenId)) &&
                       write_all(file.get(), content.media.data(), content.media.size() * sizeof(MediaRef)) &&
                       write_all(file.get(), record.payload->data(), record.payload->size()) &&
                       std::fflush(file.get()) == 0;
  std::error_code failed;
  if (!written) failed = std::error_code(errno != 0 ? errno : EIO, std::generic_category());
  file.reset();
  if (written) std::filesystem::rename(beside, path, failed);
  std::error_code ignored;
  if (failed) std::filesystem::remove(beside, ignored);
  return failed;
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
  std::vector<std::byte> payload(opened->head.payload_bytes);
  if (!read_all(opened->file.get(), payload.data(), payload.size())) return std::nullopt;
  record.payload = std::make_shared<const std::vector<std::byte>>(std::move(payload));
  if (checksum_of(opened->head, record) != opened->head.checksum) return std::nullopt;
  return std::move(record);
}

}  // namespace quire
