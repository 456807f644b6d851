// The flat hash tables behind MergeModel: texts to symbols, pairs of symbols to their merge, pairs of characters.
// Immutable once filled; any thread. Open addressing, at most half full.
#pragma once

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

inline std::uint64_t mixed(std::uint64_t key) {
  key *= 0x9E3779B97F4A7C15ULL;
  return key ^ (key >> 32);
}

// Texts to symbols. Texts are kept in one block of memory.
class TextIndex {
 public:
  void reserve(std::size_t count) { rehash(std::bit_ceil(count * 2 + 16)); }

  // False, and no change, if the text is already known.
  bool insert(std::string_view text, std::int32_t symbol) {
    if (find(text) >= 0) return false;
    if ((count_ + 1) * 2 > buckets_.size()) rehash(buckets_.empty() ? 16 : buckets_.size() * 2);
    const std::uint64_t hash = hash_of(text);
    place({static_cast<std::uint32_t>(block_.size()), static_cast<std::uint32_t>(text.size()),
           static_cast<std::uint32_t>(hash >> 32), symbol},
          hash);
    block_ += text;
    longest_ = std::max(longest_, text.size());
    ++count_;
    return true;
  }

  std::size_t longest() const { return longest_; }  // bytes of the longest text

  std::int32_t find(std::string_view text) const {
    if (buckets_.empty()) return -1;
    const std::uint64_t hash = hash_of(text);
    for (std::size_t i = hash & mask();; i = (i + 1) & mask()) {
      const Bucket& bucket = buckets_[i];
      if (bucket.symbol < 0) return -1;
      if (bucket.tag == static_cast<std::uint32_t>(hash >> 32) && text_of(bucket) == text) return bucket.symbol;
    }
  }

 private:
  struct Bucket {
    std::uint32_t offset = 0;
    std::uint32_t size = 0;
    std::uint32_t tag = 0;
    std::int32_t symbol = -1;
  };

  static std::uint64_t hash_of(std::string_view text) { return std::hash<std::string_view>{}(text); }
  std::size_t mask() const { return buckets_.size() - 1; }
  std::string_view text_of(const Bucket& bucket) const {
    return std::string_view(block_).substr(bucket.offset, bucket.size);
  }
  void place(const Bucket& bucket, std::uint64_t hash) {
    std::size_t i = hash & mask();
    while (buckets_[i].symbol >= 0)
      i = (i + 1) & mask();
    buckets_[i] = bucket;
  }
  void rehash(std::size_t size) {
    std::vector<Bucket> old(size);
    old.swap(buckets_);
    for (const Bucket& bucket : old) {
      if (bucket.symbol >= 0) place(bucket, hash_of(text_of(bucket)));
    }
  }

  std::vector<Bucket> buckets_;
  std::string block_;
  std::size_t count_ = 0;
  std::size_t longest_ = 0;
};

// Pairs of symbols to their rank (the lowest merges first) and result.
class PairTable {
 public:
  static constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
  struct Merge {
    std::uint32_t rank = kNoRank;
    std::int32_t result = -1;
  };

  void reserve(std::size_t count) { rehash(std::bit_ceil(count * 2 + 16)); }

  // Keeps the pair's first entry.
  void insert(std::int32_t left, std::int32_t right, Merge merge) {
    if ((count_ + 1) * 2 > buckets_.size()) rehash(buckets_.empty() ? 16 : buckets_.size() * 2);
    Bucket& bucket = buckets_[position(key_of(left, right))];
    if (bucket.merge.rank != kNoRank) return;
    bucket = {key_of(left, right), merge};
    ++count_;
  }

  Merge find(std::int32_t left, std::int32_t right) const {
    return buckets_.empty() ? Merge{} : buckets_[position(key_of(left, right))].merge;
  }

 private:
  struct Bucket {
    std::uint64_t key = 0;
    Merge merge;
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
  }
  std::size_t position(std::uint64_t key) const {
    const std::size_t mask = buckets_.size() - 1;
    std::size_t i = mixed(key) & mask;
    while (buckets_[i].merge.rank != kNoRank && buckets_[i].key != key)
      i = (i + 1) & mask;
    return i;
  }
  void rehash(std::size_t size) {
    std::vector<Bucket> old(size);
    old.swap(buckets_);
    for (const Bucket& bucket : old) {
      if (bucket.merge.rank != kNoRank) buckets_[position(bucket.key)] = bucket;
    }
  }

  std::vector<Bucket> buckets_;
  std::size_t count_ = 0;
};

// A set of pairs of characters.
class CharacterPairs {
 public:
  void insert(char32_t first, char32_t second) {
    if (first < 128 && second < 128) {
      ascii_.set(first * 128 + second);
    } else {
      others_.insert(static_cast<std::int32_t>(first), static_cast<std::int32_t>(second), {0, 0});
    }
  }
  bool contains(char32_t first, char32_t second) const {
    if (first < 128 && second < 128) return ascii_.test(first * 128 + second);
    return others_.find(static_cast<std::int32_t>(first), static_cast<std::int32_t>(second)).rank == 0;
  }

 private:
  std::bitset<128 * 128> ascii_;
  PairTable others_;
};

}  // namespace quire
