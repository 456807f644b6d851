#include "core/model/layers/packed_cache.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/base/result.h"

namespace quire {

namespace {

constexpr std::uint64_t kMagic = 0x31304b5045524955;  // at the very end: a file cut short has none
constexpr std::uint64_t kLayoutVersion = 1;
constexpr std::uint64_t kAlignment = 4096;
constexpr std::size_t kSample = 4096;
// The page cache keeps what was written at once, at a multiple of a huge page, in huge pages where the file system can:
// the next start then maps those.
constexpr std::size_t kPiece = std::size_t{4} << 20;

// The last bytes of a file; before it lie the table and the identity.
struct Trailer {
  std::uint64_t num_entries = 0;
  std::uint64_t identity_bytes = 0;
  std::uint64_t hash = 0;  // of table and identity
  std::uint64_t file_bytes = 0;
  std::uint64_t magic = kMagic;
};

std::uint64_t hash_of(const std::vector<std::uint64_t>& table, const std::string& identity) {
  const std::uint64_t seed = XXH3_64bits(table.data(), table.size() * sizeof(std::uint64_t));
  return XXH3_64bits_withSeed(identity.data(), identity.size(), seed);
}

// The same of rows that no file holds.
std::uint64_t made_sample_hash(const WeightSource& source, std::uint64_t seed) {
  std::vector<std::byte> row(dtype_bytes(source.type, source.cols));
  std::uint64_t hash = seed;
  for (const std::int64_t at : {std::int64_t{0}, source.rows / 2, source.rows - 1}) {
    source.maker->make_row(source.first_row + at, row.data());
    hash = XXH3_64bits_withSeed(row.data(), row.size(), hash);
  }
  if (source.order == nullptr) return hash;
  return XXH3_64bits_withSeed(source.order, static_cast<std::size_t>(source.cols) * sizeof *source.order, hash);
}

// Begin, middle and end of a matrix.
std::uint64_t sample_hash(const WeightSource& source, std::uint64_t seed) {
  if (source.maker != nullptr) return made_sample_hash(source, seed);
  const std::size_t bytes = dtype_bytes(source.type, source.rows * source.cols);
  const std::size_t count = std::min(kSample, bytes);
  std::uint64_t hash = seed;
  for (const std::size_t at : {std::size_t{0}, (bytes - count) / 2, bytes - count})
    hash = XXH3_64bits_withSeed(source.data + at, count, hash);
  return hash;
}

}  // namespace

std::string packed_identity(const WeightSources& sources, const std::string& packing,
                            const std::string& model_version) {
  std::string identity = fmt::format("layout {}\n{}\n{}\n", kLayoutVersion, packing, model_version);
  std::uint64_t hash = 0;
  const auto add = [&](const WeightSource& source) {
    identity += fmt::format("{} {}x{}\n", dtype_info(source.type).name, source.rows, source.cols);
    hash = sample_hash(source, hash);
  };
  sources.for_each_product([&](const LinearSource& product) {
    for (const WeightSource& part : product.parts)
      add(part);
  });
  return identity + fmt::format("samples {:016x}\n", hash);
}

PackedCache::PackedCache(std::filesystem::path folder, std::string identity)
    : path_(std::move(folder)), identity_(std::move(identity)) {
  path_ /= fmt::format("{:016x}.quire-packed", XXH3_64bits(identity_.data(), identity_.size()));
}

std::shared_ptr<const PackedWeights> PackedCache::open(std::size_t num_entries) const {
  std::shared_ptr<PackedWeights> found;
  try {
    found.reset(new PackedWeights(path_));
  } catch (const StartupError&) {
    return nullptr;  // there is none yet, or it cannot be read: packing does without
  }
  const std::span<const std::byte> bytes = found->file_.bytes();
  Trailer trailer;
  if (bytes.size() < sizeof trailer) return nullptr;
  std::memcpy(&trailer, bytes.data() + bytes.size() - sizeof trailer, sizeof trailer);
  if (trailer.magic != kMagic || trailer.file_bytes != bytes.size() || trailer.num_entries != num_entries ||
      trailer.identity_bytes != identity_.size()) {
    return nullptr;
  }
  std::vector<std::uint64_t> table(2 * num_entries);
  const std::size_t table_bytes = table.size() * sizeof(std::uint64_t);
  if (bytes.size() - sizeof trailer < table_bytes + identity_.size()) return nullptr;
  const std::size_t table_at = bytes.size() - sizeof trailer - identity_.size() - table_bytes;
  std::memcpy(table.data(), bytes.data() + table_at, table_bytes);
  if (std::memcmp(bytes.data() + table_at + table_bytes, identity_.data(), identity_.size()) != 0 ||
      trailer.hash != hash_of(table, identity_)) {
    return nullptr;
  }
  for (std::size_t i = 0; i < num_entries; ++i) {
    const std::uint64_t offset = table[2 * i];
    const std::uint64_t size = table[2 * i + 1];
    if (offset % kAlignment != 0 || offset > table_at || size > table_at - offset) return nullptr;
    found->entries_.push_back(bytes.subspan(offset, size));
  }
  return found;
}

std::unique_ptr<PackedWriter> PackedCache::create() const {
  return std::unique_ptr<PackedWriter>(new PackedWriter(path_, identity_));
}

PackedWriter::PackedWriter(std::filesystem::path path, std::string identity)
    : path_(std::move(path)), identity_(std::move(identity)) {
  std::error_code error;
  std::filesystem::create_directories(path_.parent_path(), error);
  temporary_ = path_.string() + ".XXXXXX";
  fd_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
  if (fd_ < 0) error_ = std::strerror(errno);
}

PackedWriter::~PackedWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

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
  std::span<const std::byte> rest = pending_;
  while (!rest.empty() && error_.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      error_ = written < 0 ? std::strerror(errno) : "nothing could be written";
    } else {
      rest = rest.subspan(static_cast<std::size_t>(written));
    }
  }
  pending_.clear();
}

void PackedWriter::add(std::span<const std::byte> packed) {
  const std::vector<std::byte> padding((kAlignment - offset_ % kAlignment) % kAlignment);
  write(padding.data(), padding.size());
  table_.push_back(offset_);
  table_.push_back(packed.size());
  write(packed.data(), packed.size());
}

std::string PackedWriter::finish() {
  Trailer trailer{.num_entries = table_.size() / 2,
                  .identity_bytes = identity_.size(),
                  .hash = hash_of(table_, identity_),
                  .file_bytes = 0,
                  .magic = kMagic};
  write(table_.data(), table_.size() * sizeof(std::uint64_t));
  write(identity_.data(), identity_.size());
  trailer.file_bytes = offset_ + sizeof trailer;
  write(&trailer, sizeof trailer);
  write_pending();
  if (error_.empty() && (::fsync(fd_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0)) {
    error_ = std::strerror(errno);
  }
  if (!error_.empty()) return error_;
  ::close(fd_);
  fd_ = -1;
  // The name too is kept only once the folder is on disk; without that a crash merely loses the cache.
  const int folder = ::open(path_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  return {};
}

}  // namespace quire
