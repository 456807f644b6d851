#include "core/kv/moves/chain_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <numeric>
#include <system_error>

#include "core/base/files/writing.h"
#include "core/kv/tiers/stdio_file.h"

namespace quire {

namespace {

constexpr std::uint32_t kChainMagic = 0x4C535651;  // "QVSL"
constexpr std::uint32_t kChainVersion = 1;
constexpr std::uint32_t kMostSaltBytes = 1 << 16;

// The file's head in the machine's byte order; the magic number differs on machines with another order.
struct ChainHead {
  std::uint64_t checksum;  // covers everything after this word
  ChainKey fingerprint;
  std::uint32_t salt_bytes;
  std::uint32_t num_media;
  std::uint64_t num_tokens;
  std::uint64_t num_blocks;
  std::uint32_t magic;
  std::uint32_t version;
};
static_assert(sizeof(ChainHead) == 56, "no padding");

std::vector<std::uint64_t> sizes_of(const KeptChain& chain) {
  std::vector<std::uint64_t> sizes;
  for (const BlockPayload& payload : chain.payloads)
    sizes.push_back(payload->size());
  return sizes;
}

std::uint64_t checksum_of(const ChainHead& head, const KeptChain& chain, const std::vector<std::uint64_t>& sizes) {
  const HashState state(XXH3_createState());
  XXH3_64bits_reset(state.get());
  const auto add = [&](const void* data, std::size_t size) { XXH3_64bits_update(state.get(), data, size); };
  add(reinterpret_cast<const char*>(&head) + sizeof head.checksum, sizeof head - sizeof head.checksum);
  add(chain.salt.data(), chain.salt.size());
  add(chain.content.tokens.data(), chain.content.tokens.size() * sizeof(TokenId));
  add(chain.content.media.data(), chain.content.media.size() * sizeof(MediaRef));
  add(sizes.data(), sizes.size() * sizeof(std::uint64_t));
  for (const BlockPayload& payload : chain.payloads)
    add(payload->data(), payload->size());
  return XXH3_64bits_digest(state.get());
}

// `left`: unread bytes of the file, reduced by each read, since sizes in the file cannot be trusted.
bool read_counted(std::FILE* file, void* data, std::uint64_t size, std::uint64_t& left) {
  if (size > left) return false;
  left -= size;
  return read_all(file, data, size);
}

tl::unexpected<Error> damaged() {
  return invalid("The file is not a saved slot, or it is damaged", "filename", "invalid_slot_file");
}

Error failed_to_write(std::error_code why) {
  return Error{ErrorKind::kInternal, "The slot could not be written: " + describe_write_error(why.value()),
               "slot_not_saved", "filename"};
}

// Everything but the head's checksum, which the caller compares.
bool read_content(std::FILE* file, const ChainHead& head, std::uint64_t left, KeptChain& chain,
                  std::vector<std::uint64_t>& sizes) {
  if (head.salt_bytes > kMostSaltBytes || head.num_tokens > left / sizeof(TokenId) ||
      head.num_media > left / sizeof(MediaRef) || head.num_blocks > left / sizeof(std::uint64_t)) {
    return false;
  }
  chain.salt.resize(head.salt_bytes);
  chain.content.tokens.resize(head.num_tokens);
  chain.content.media.resize(head.num_media);
  sizes.resize(head.num_blocks);
  if (!read_counted(file, chain.salt.data(), head.salt_bytes, left) ||
      !read_counted(file, chain.content.tokens.data(), head.num_tokens * sizeof(TokenId), left) ||
      !read_counted(file, chain.content.media.data(), head.num_media * sizeof(MediaRef), left) ||
      !read_counted(file, sizes.data(), head.num_blocks * sizeof(std::uint64_t), left)) {
    return false;
  }
  for (const std::uint64_t size : sizes) {
    if (size > left) return false;
    std::vector<std::byte> payload(size);
    if (!read_counted(file, payload.data(), size, left)) return false;
    chain.payloads.push_back(std::make_shared<const std::vector<std::byte>>(std::move(payload)));
  }
  return left == 0;
}

}  // namespace

std::int64_t chain_bytes(const KeptChain& chain) {
  const std::vector<std::uint64_t> sizes = sizes_of(chain);
  return static_cast<std::int64_t>(
      sizeof(ChainHead) + chain.salt.size() + chain.content.tokens.size() * sizeof(TokenId) +
      chain.content.media.size() * sizeof(MediaRef) + sizes.size() * sizeof(std::uint64_t) +
      std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}));
}

Result<void> write_chain(const std::filesystem::path& path, const KeptChain& chain) {
  const std::vector<std::uint64_t> sizes = sizes_of(chain);
  ChainHead head{.checksum = 0,
                 .fingerprint = chain.fingerprint,
                 .salt_bytes = static_cast<std::uint32_t>(chain.salt.size()),
                 .num_media = static_cast<std::uint32_t>(chain.content.media.size()),
                 .num_tokens = chain.content.tokens.size(),
                 .num_blocks = sizes.size(),
                 .magic = kChainMagic,
                 .version = kChainVersion};
  head.checksum = checksum_of(head, chain, sizes);
  std::filesystem::path beside = path;
  beside += ".part";
  std::error_code failed;
  std::filesystem::remove(beside, failed);
  errno = 0;
  const int descriptor = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (descriptor < 0) return tl::make_unexpected(failed_to_write({errno, std::generic_category()}));
  StdioFile file(::fdopen(descriptor, "wb"));
  bool written = write_all(file.get(), &head, sizeof head) &&
                 write_all(file.get(), chain.salt.data(), chain.salt.size()) &&
                 write_all(file.get(), chain.content.tokens.data(), chain.content.tokens.size() * sizeof(TokenId)) &&
                 write_all(file.get(), chain.content.media.data(), chain.content.media.size() * sizeof(MediaRef)) &&
                 write_all(file.get(), sizes.data(), sizes.size() * sizeof(std::uint64_t));
  for (const BlockPayload& payload : chain.payloads)
    written = written && write_all(file.get(), payload->data(), payload->size());
  written = written && std::fflush(file.get()) == 0 && ::fsync(descriptor) == 0;
  failed = written ? std::error_code() : std::error_code(errno != 0 ? errno : EIO, std::generic_category());
  file.reset();
  if (written) std::filesystem::rename(beside, path, failed);
  if (!failed) return {};
  std::error_code ignored;
  std::filesystem::remove(beside, ignored);
  return tl::make_unexpected(failed_to_write(failed));
}

Result<KeptChain> read_chain(const std::filesystem::path& path, std::int64_t max_bytes) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) {
    return tl::make_unexpected(
        Error{ErrorKind::kNotFound, "There is no such saved slot", "slot_file_not_found", "filename"});
  }
  const StdioFile file(::fdopen(descriptor, "rb"));
  struct stat status {};
  ChainHead head{};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < std::int64_t{sizeof head} ||
      status.st_size > max_bytes || !read_all(file.get(), &head, sizeof head)) {
    return damaged();
  }
  if (head.magic != kChainMagic || head.version != kChainVersion) return damaged();
  KeptChain chain{.fingerprint = head.fingerprint};
  std::vector<std::uint64_t> sizes;
  const std::uint64_t left = static_cast<std::uint64_t>(status.st_size) - sizeof head;
  try {
    if (!read_content(file.get(), head, left, chain, sizes) || checksum_of(head, chain, sizes) != head.checksum)
      return damaged();
  } catch (const std::bad_alloc&) {
    return tl::make_unexpected(out_of_memory());
  }
  return chain;
}

}  // namespace quire
