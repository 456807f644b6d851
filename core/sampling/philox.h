// Philox4x32-10: random numbers as a pure function of a key and a counter. Any thread.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace quire {

constexpr std::array<std::uint32_t, 4> philox(std::uint64_t key, std::array<std::uint32_t, 4> counter) {
  auto key_low = static_cast<std::uint32_t>(key);
  auto key_high = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key_low, static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key_high,
               static_cast<std::uint32_t>(product0)};
    key_low += 0x9E3779B9;
    key_high += 0xBB67AE85;
  }
  return counter;
}

// Purpose of a draw: each has a random stream of its own.
enum class Draw : std::uint32_t { kToken, kXtc };

// Uniform in [0, 1) with 53 bits: a function of the request's seed, choice and position only.
constexpr double uniform(std::uint64_t seed, std::int32_t choice, std::int64_t position, Draw draw) {
  const auto bits = philox(seed, {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
                                  static_cast<std::uint32_t>(choice), static_cast<std::uint32_t>(draw)});
  const std::uint64_t mantissa = ((std::uint64_t{bits[0]} << 32) | bits[1]) >> 11;
  return static_cast<double>(mantissa) * 0x1p-53;
}

// Random numbers of one row's draw.
struct RowRandom {
  std::uint64_t seed = 0;
  std::int32_t choice = 0;
  std::int64_t position = 0;

  constexpr double uniform(Draw draw) const { return quire::uniform(seed, choice, position, draw); }
};

}  // namespace quire
