// CharacterMap: SentencePiece's precompiled_charsmap, the replacements that a model's normaliser was compiled to: a
// double array over byte sequences, then the replacements' texts. Immutable after construction; any thread. Invariant:
// no access leaves the map, even if the file is damaged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class CharacterMap {
 public:
  // Throws StartupError if the map is inconsistent. An empty text is a map that changes nothing.
  explicit CharacterMap(std::string_view compiled);

  bool empty() const { return units_.empty(); }
  // Replaces the longest known sequence at each place.
  std::string apply(std::string_view text) const;

 private:
  struct Found {
    std::size_t size = 0;  // bytes of text matched; 0: none
    std::string_view replacement;
  };
  Found longest_at_front(std::string_view text) const;
  std::string_view replacement_at(std::size_t offset) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;  // each ends with a zero byte
};

}  // namespace quire
