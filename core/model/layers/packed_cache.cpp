#include "core/model/layers/packed_cache.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "core/base/result.h"
#include "core/model/formats/files/known_contents.h"

namespace quire {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMagic = 0x32304b5045524955;  // at the very end, so that a truncated file has none
constexpr std::uint64_t kAlignment = 4096;
constexpr const char* kSuffix = ".quire-packed";
// The page cache keeps data in huge pages, if the file system can, when it is written in one piece at a multiple of a
// huge page; the next start then maps those. Each piece is hashed as it is written.
constexpr std::size_t kPiece = kHashedPiece;

// Milliseconds until the clock of files has advanced.
constexpr int kMostTicks = 20;

// The end of a file; the table and the identity precede it.
struct Trailer {
  std::uint64_t num_entries = 0;
  std::uint64_t identity_bytes = 0;
  std::uint64_t file_bytes = 0;
  ContentHash content{};   // hash of all bytes before the trailer
  std::uint64_t hash = 0;  // hash of the table, the identity and the words above
  std::uint64_t magic = kMagic;
};

std::uint64_t hash_of(const Trailer& trailer, const std::vector<std::uint64_t>& table, const std::string& identity) {
  std::uint64_t hash = XXH3_64bits(table.data(), table.size() * sizeof(std::uint64_t));
  hash = XXH3_64bits_withSeed(identity.data(), identity.size(), hash);
  return XXH3_64bits_withSeed(&trailer, offsetof(Trailer, hash), hash);
}

// The entries of a complete file with this identity; nothing if it is another or damaged file.
struct Structure {
  Trailer trailer;
  std::vector<std::span<const std::byte>> entries;
};
std::optional<Structure> structure_of(std::span<const std::byte> bytes, const std::string& identity,
                                      std::size_t num_entries) {
  Structure found;
  Trailer& trailer = found.trailer;
  if (bytes.size() < sizeof trailer) return std::nullopt;
  std::memcpy(&trailer, bytes.data() + bytes.size() - sizeof trailer, sizeof trailer);
  if (trailer.magic != kMagic || trailer.file_bytes != bytes.size() || trailer.num_entries != num_entries ||
      trailer.identity_bytes != identity.size()) {
    return std::nullopt;
  }
  std::vector<std::uint64_t> table(2 * num_entries);
  const std::size_t table_bytes = table.size() * sizeof(std::uint64_t);
  if (bytes.size() - sizeof trailer < table_bytes + identity.size()) return std::nullopt;
  const std::size_t table_at = bytes.size() - sizeof trailer - identity.size() - table_bytes;
  std::memcpy(table.data(), bytes.data() + table_at, table_bytes);
  if (std::memcmp(bytes.data() + table_at + table_bytes, identity.data(), identity.size()) != 0 ||
      trailer.hash != hash_of(trailer, table, identity)) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < num_entries; ++i) {
    const std::uint64_t offset = table[2 * i];
    const std::uint64_t size = table[2 * i + 1];
    if (offset % kAlignment != 0 || offset > table_at || size > table_at - offset) return std::nullopt;
    found.entries.push_back(bytes.subspan(offset, size));
  }
  return found;
}

}  // namespace

PackedCache::PackedCache(fs::path folder, std::string identity, std::int64_t max_bytes)
    : path_(std::move(folder)), identity_(std::move(identity)), max_bytes_(static_cast<std::uint64_t>(max_bytes)) {
  const XXH128_hash_t name = XXH3_128bits(identity_.data(), identity_.size());
  path_ /= fmt::format("{:016x}{:016x}{}", name.high64, name.low64, kSuffix);
}

std::shared_ptr<const PackedWeights> PackedCache::open(std::size_t num_entries,
                                                       const std::function<void()>& poll) const {
  remove_abandoned(path_.parent_path(), kSuffix);
  std::shared_ptr<PackedWeights> found;
  try {
    found.reset(new PackedWeights(path_));
  } catch (const StartupError&) {
    return nullptr;  // absent or unreadable: weights are packed instead
  }
  const MappedFile& file = found->file_;
  auto structure = structure_of(file.bytes(), identity_, num_entries);
  if (!structure || !has_content(file, file.bytes().size() - sizeof(Trailer), structure->trailer.content, poll))
    return nullptr;
  found->entries_ = std::move(structure->entries);
  return found;
}

// A file that was copied, restored or written to since has a stamp other than the stored one.
bool PackedCache::has_content(const MappedFile& file, std::size_t num_bytes, const ContentHash& content,
                              const std::function<void()>& poll) const {
  KnownContents known(path_.parent_path());
  const bool is_known = known.find(file.stamp()) == content;
  const bool is_settled = is_known || settle(file.path(), file.stamp(), stamping_clock());
  if (!is_known) {
    BackgroundWork<ContentHash> hashing(
        [&](const std::stop_token& stop) { return hash_content(file.bytes().first(num_bytes), stop); });
    if (hashing.wait(poll) != content) return false;
  }
  if (is_settled && stamp_of(file.path()) == file.stamp()) known.remember(file.stamp(), content);
  return true;
}

std::unique_ptr<PackedWriter> PackedCache::create(std::uint64_t num_bytes) const {
  if (num_bytes > max_bytes_) return nullptr;
  remove_abandoned(path_.parent_path(), kSuffix);
  make_room(num_bytes);
  return std::unique_ptr<PackedWriter>(new PackedWriter(path_, identity_, static_cast<std::int64_t>(max_bytes_)));
}

// Mapped files are removed too: their users keep the bytes.
void PackedCache::make_room(std::uint64_t num_bytes) const {
  const KnownContents known(path_.parent_path());
  // Files without a known use are removed first, in the order of their times.
  using Use = std::pair<std::size_t, std::int64_t>;
  std::multimap<Use, std::pair<fs::path, std::uint64_t>> files;
  std::uint64_t total = num_bytes;
  std::error_code error;
  for (fs::directory_iterator at(path_.parent_path(), error), end; !error && at != end; at.increment(error)) {
    if (!at->path().native().ends_with(kSuffix)) continue;
    const auto stamp = stamp_of(at->path());
    if (!stamp || at->path() == path_) continue;
    const auto place = known.last_use(*stamp);
    files.emplace(Use{place ? *place + 1 : 0, stamp->modified}, std::pair(at->path(), stamp->size));
    total += stamp->size;
  }
  for (const auto& [use, file] : files) {
    if (total <= max_bytes_) return;
    std::error_code ignored;
    if (fs::remove(file.first, ignored)) total -= file.second;
  }
}

PackedWriter::PackedWriter(fs::path path, std::string identity, std::int64_t max_bytes)
    : path_(std::move(path)),
      file_(path_),
      identity_(std::move(identity)),
      max_bytes_(static_cast<std::uint64_t>(max_bytes)) {}

void PackedWriter::write(const void* from, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(from);
  offset_ += bytes;
  while (bytes > 0) {
    const std::size_t taken = std::min(bytes, kPiece - pending_.size());
    pending_.insert(pending_.end(), at, at + taken);
    at += taken;
    bytes -= taken;
    if (pending_.size() == kPiece) write_pending();
  }
}

void PackedWriter::write_pending() {
  if (pending_.empty() || file_.error()) return pending_.clear();
  digest_.add_piece(pending_);
  file_.write(pending_);
  pending_.clear();
}

void PackedWriter::add(std::span<const std::byte> packed) {
  if (offset_ + packed.size() > max_bytes_) {
    offset_ = max_bytes_ + 1;
    return;
  }
  const std::vector<std::byte> padding((kAlignment - offset_ % kAlignment) % kAlignment);
  write(padding.data(), padding.size());
  table_.push_back(offset_);
  table_.push_back(packed.size());
  write(packed.data(), packed.size());
}

std::string PackedWriter::finish() {
  if (offset_ > max_bytes_)
    return fmt::format("they are more than the {} bytes of model.packed_cache_bytes", max_bytes_);
  Trailer trailer{.num_entries = table_.size() / 2, .identity_bytes = identity_.size()};
  write(table_.data(), table_.size() * sizeof(std::uint64_t));
  write(identity_.data(), identity_.size());
  write_pending();
  trailer.file_bytes = offset_ + sizeof trailer;
  trailer.content = digest_.finish();
  trailer.hash = hash_of(trailer, table_, identity_);
  file_.write(std::as_bytes(std::span(&trailer, 1)));
  file_.commit(true);
  if (file_.error()) return file_.error().message();
  // Without another writer, the bytes are known without reading them.
  const auto stamp = stamp_of(path_);
  for (int i = 0; stamp && i < kMostTicks; ++i) {
    if (settle(path_, *stamp, stamping_clock())) {
      KnownContents(path_.parent_path()).remember(*stamp, trailer.content);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

}  // namespace quire
