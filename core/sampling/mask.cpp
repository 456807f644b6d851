#include "core/sampling/mask.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace quire {

void apply_mask(std::span<float> logits, std::span<const std::uint32_t> mask) {
  for (std::size_t word = 0; word * 32 < logits.size(); ++word) {
    const std::uint32_t bits = word < mask.size() ? mask[word] : 0;
    if (bits == ~std::uint32_t{0}) continue;
    const std::size_t end = std::min(word * 32 + 32, logits.size());
    for (std::size_t i = word * 32; i < end; ++i) {
      if (((bits >> (i % 32)) & 1U) == 0) logits[i] = -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace quire
