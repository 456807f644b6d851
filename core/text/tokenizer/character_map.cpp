#include "core/text/tokenizer/character_map.h"

#include <cstring>

#include "core/base/result.h"
#include "core/text/unicode.h"

namespace quire {
namespace {

// A unit of the double array: an offset to its children, the byte that leads to it, and whether a replacement ends
// here; if so, the first child holds the replacement's offset instead.
std::uint32_t offset_of(std::uint32_t unit) {
  return (unit >> 10) << ((unit & (1U << 9)) >> 6);
}
std::uint32_t label_of(std::uint32_t unit) {
  return unit & ((1U << 31) | 0xFFU);
}
bool ends_here(std::uint32_t unit) {
  return ((unit >> 8) & 1U) != 0;
}
std::uint32_t value_of(std::uint32_t unit) {
  return unit & ((1U << 31) - 1);
}

}  // namespace

CharacterMap::CharacterMap(std::string_view compiled) {
  if (compiled.empty()) return;
  std::uint32_t size = 0;
  if (compiled.size() < sizeof size) throw StartupError("the precompiled character map is cut short");
  std::memcpy(&size, compiled.data(), sizeof size);
  compiled.remove_prefix(sizeof size);
  if (size == 0 || size % sizeof(std::uint32_t) != 0 || size > compiled.size()) {
    throw StartupError("the precompiled character map's parts do not fit into it");
  }
  units_.resize(size / sizeof(std::uint32_t));
  std::memcpy(units_.data(), compiled.data(), size);
  replacements_ = compiled.substr(size);
}

std::string_view CharacterMap::replacement_at(std::size_t offset) const {
  if (offset >= replacements_.size()) return {};
  const std::string_view rest = std::string_view(replacements_).substr(offset);
  return rest.substr(0, rest.find('\0'));
}

CharacterMap::Found CharacterMap::longest_at_front(std::string_view text) const {
  Found found;
  std::size_t node = offset_of(units_[0]);
  for (std::size_t at = 0; at < text.size() && text[at] != '\0'; ++at) {
    const auto byte = static_cast<std::uint8_t>(text[at]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (ends_here(unit) && node < units_.size()) found = {at + 1, replacement_at(value_of(units_[node]))};
  }
  return found;
}

std::string CharacterMap::apply(std::string_view text) const {
  if (empty()) return std::string(text);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Found found = longest_at_front(text);
    const std::size_t size = found.size > 0 ? found.size : unicode::decode(text).length;
    out += found.size > 0 ? found.replacement : text.substr(0, size);
    text.remove_prefix(size);
  }
  return out;
}

}  // namespace quire
