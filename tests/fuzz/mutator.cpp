#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <cstring>

namespace quire::fuzz {

namespace {

constexpr std::size_t kMaxBytes = 1 << 16;

// Values at which counts, sizes and offsets overflow or change sign.
constexpr std::uint64_t kEdges[] = {
    0,          1,          2,          7,          8,           0x7F,       0x80,
    0xFF,       0x100,      0x7FFF,     0xFFFF,     0x10000,     0x7FFFFFFF, 0x80000000,
    0xFFFFFFFF, 1ULL << 32, 1ULL << 40, 1ULL << 56, ~0ULL >> 1U, 1ULL << 63, ~0ULL,
};

}  // namespace

Input Mutator::next() {
  Input input = corpus_[below(corpus_.size())];
  for (std::size_t changes = 1 + below(8); changes > 0; --changes)
    change(input);
  if (input.size() > kMaxBytes) input.resize(kMaxBytes);
  return input;
}

void Mutator::change(Input& input) {
  switch (below(6)) {
    case 0:
      if (!input.empty()) input[below(input.size())] ^= static_cast<std::uint8_t>(1U << below(8));
      return;
    case 1:
      if (!input.empty()) input[below(input.size())] = static_cast<std::uint8_t>(below(256));
      return;
    case 2: return overwrite_integer(input);
    case 3: return cut(input);
    case 4: {
      const Input self = input;
      return copy(input, self);
    }
    default: return copy(input, corpus_[below(corpus_.size())]);
  }
}

void Mutator::overwrite_integer(Input& input) {
  const std::size_t width = std::size_t{1} << below(4);
  if (input.size() < width) return;
  std::uint64_t value = kEdges[below(std::size(kEdges))];
  if (below(4) == 0) value = below(2 * input.size() + 2);
  std::memcpy(input.data() + below(input.size() - width + 1), &value, width);  // the low bytes: little-endian
}

void Mutator::cut(Input& input) {
  const std::size_t begin = below(input.size() + 1);
  const std::size_t length =
      below(2) == 0 ? input.size() - begin : below(std::min<std::size_t>(input.size() - begin, 32) + 1);
  const auto first = input.begin() + static_cast<std::ptrdiff_t>(begin);
  input.erase(first, first + static_cast<std::ptrdiff_t>(length));
}

void Mutator::copy(Input& input, const Input& from) {
  const std::size_t begin = below(from.size() + 1);
  const std::size_t length = below(std::min<std::size_t>(from.size() - begin, 256) + 1);
  const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto to = input.begin() + static_cast<std::ptrdiff_t>(below(input.size() + 1));
  input.insert(to, first, first + static_cast<std::ptrdiff_t>(length));
}

}  // namespace quire::fuzz
