#include "core/model/formats/files/content_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>

namespace quire {

namespace {

// More threads exceed the bandwidth of memory or disk.
constexpr std::size_t kMostThreads = 8;

ContentHash hash_of(const void* data, std::size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return {hash.low64, hash.high64};
}

}  // namespace

std::string hex_digits(const ContentHash& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

void ContentDigest::add_piece(std::span<const std::byte> piece) {
  pieces_.push_back(hash_of(piece.data(), piece.size()));
  num_bytes_ += piece.size();
}

ContentHash ContentDigest::finish() const {
  std::vector<ContentHash> all = pieces_;
  all.push_back({num_bytes_, 0});
  return hash_of(all.data(), all.size() * sizeof(ContentHash));
}

ContentHash hash_content(std::span<const std::byte> bytes, const std::stop_token& stop) {
  ContentDigest digest;
  digest.num_bytes_ = bytes.size();
  digest.pieces_.resize((bytes.size() + kHashedPiece - 1) / kHashedPiece);
  std::atomic<std::size_t> next{0};
  const auto hash_pieces = [&] {
    for (std::size_t i = next++; i < digest.pieces_.size() && !stop.stop_requested(); i = next++) {
      const auto piece = bytes.subspan(i * kHashedPiece, std::min(kHashedPiece, bytes.size() - i * kHashedPiece));
      digest.pieces_[i] = hash_of(piece.data(), piece.size());
    }
  };
  const std::size_t wanted =
      std::min({digest.pieces_.size(), kMostThreads, static_cast<std::size_t>(std::thread::hardware_concurrency())});
  std::vector<std::jthread> others;
  try {
    while (others.size() + 1 < wanted)
      others.emplace_back(hash_pieces);
  } catch (const std::system_error&) {  // the threads already started do the work
  }
  hash_pieces();
  others.clear();
  return digest.finish();
}

}  // namespace quire
