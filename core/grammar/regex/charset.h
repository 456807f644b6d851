// CharSet: a set of Unicode scalar values as sorted, disjoint, non-adjacent ranges. Value type; any thread. Invariant:
// surrogates are never members, so a complement has only code points that UTF-8 text can contain.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace quire::grammar {

inline constexpr char32_t kMaxCodePoint = 0x10FFFF;

struct CodeRange {
  char32_t lo;
  char32_t hi;  // inclusive
  bool operator==(const CodeRange&) const = default;
};

class CharSet {
 public:
  CharSet() = default;
  CharSet(char32_t lo, char32_t hi) { add(lo, hi); }
  static CharSet any();

  void add(char32_t lo, char32_t hi);
  void add(const CharSet& other);
  CharSet complement() const;
  CharSet intersection(const CharSet& other) const;
  // Adds the other case of ASCII letters.
  void fold_ascii_case();
  bool contains(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<CodeRange>& ranges() const { return ranges_; }
  bool operator==(const CharSet&) const = default;

 private:
  std::vector<CodeRange> ranges_;
};

// The code points of UTF-8 text; false if it is malformed (overlong forms and surrogates included).
bool decode_utf8(std::string_view text, std::u32string& out);
void append_utf8(std::string& out, char32_t c);

}  // namespace quire::grammar
