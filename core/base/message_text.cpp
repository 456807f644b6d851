#include "core/base/message_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

namespace quire {

std::string printable(std::string_view text, std::size_t max_length) {
  std::string out;
  for (const char c : text.substr(0, max_length)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      out.push_back(c);
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  if (text.size() > max_length) out += "...";
  return out;
}

std::string shortened(std::string text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  // Never cuts between the bytes of a character.
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80)
    --max_bytes;
  return text.substr(0, max_bytes) + "...";
}

std::string hex_digits(std::span<const unsigned char> bytes) {
  std::string digits;
  for (const unsigned char byte : bytes)
    digits += fmt::format("{:02x}", byte);
  return digits;
}

namespace {

// Longer names are compared by their beginning: the comparison costs the product of both lengths.
constexpr std::size_t kMostCompared = 200;

// Letters to insert, delete, change or swap with their neighbour (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

struct Nearest {
  std::string_view name;
  std::size_t distance = ~std::size_t{0};
};

Nearest find_nearest(std::string_view written, const std::vector<std::string_view>& names) {
  Nearest nearest;
  for (const std::string_view name : names) {
    const std::size_t distance = edit_distance(written.substr(0, kMostCompared), name);
    if (distance < nearest.distance) nearest = {name, distance};
  }
  return nearest;
}

}  // namespace

std::string_view nearest_name(std::string_view written, const std::vector<std::string_view>& names) {
  return find_nearest(written, names).name;
}

std::optional<std::string_view> likely_name(std::string_view written, const std::vector<std::string_view>& names) {
  const Nearest nearest = find_nearest(written, names);
  const std::size_t most = std::max<std::size_t>(1, written.size() / 3);
  if (names.empty() || nearest.distance == 0 || nearest.distance > most) return std::nullopt;
  return nearest.name;
}

}  // namespace quire
