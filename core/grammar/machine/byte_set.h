// ByteSet: a set of byte values. Value type; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace quire::grammar {

struct ByteSet {
  std::array<std::uint64_t, 4> words{};

  ByteSet() = default;
  explicit ByteSet(std::string_view bytes) {
    for (const char byte : bytes)
      add(static_cast<std::uint8_t>(byte));
  }
  void add(std::uint8_t byte) { words[byte / 64] |= std::uint64_t{1} << byte % 64; }
  bool has(std::uint8_t byte) const { return (words[byte / 64] >> byte % 64 & 1) != 0; }
  void add(const ByteSet& other) {
    for (std::size_t i = 0; i < 4; ++i)
      words[i] |= other.words[i];
  }
  bool within(const ByteSet& other) const {
    for (std::size_t i = 0; i < 4; ++i) {
      if ((words[i] & ~other.words[i]) != 0) return false;
    }
    return true;
  }
  auto operator<=>(const ByteSet&) const = default;
};

}  // namespace quire::grammar
