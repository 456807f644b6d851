#include "core/grammar/regex/charset.h"

#include <algorithm>
#include <string>

namespace quire::grammar {

namespace {

constexpr char32_t kSurrogateFirst = 0xD800;
constexpr char32_t kSurrogateLast = 0xDFFF;

}  // namespace

CharSet CharSet::any() {
  return CharSet(0, kMaxCodePoint);
}

void CharSet::add(char32_t lo, char32_t hi) {
  if (lo > hi) return;
  if (lo <= kSurrogateLast && hi >= kSurrogateFirst) {
    if (lo < kSurrogateFirst) add(lo, kSurrogateFirst - 1);
    if (hi > kSurrogateLast) add(kSurrogateLast + 1, hi);
    return;
  }
  auto first = std::lower_bound(ranges_.begin(), ranges_.end(), lo,
                                [](const CodeRange& range, char32_t c) { return range.hi + 1 < c; });
  auto last = first;
  while (last != ranges_.end() && last->lo <= hi + 1) {
    lo = std::min(lo, last->lo);
    hi = std::max(hi, last->hi);
    ++last;
  }
  if (first == last) {
    ranges_.insert(first, CodeRange{lo, hi});
    return;
  }
  *first = CodeRange{lo, hi};
  ranges_.erase(first + 1, last);
}

void CharSet::add(const CharSet& other) {
  for (const CodeRange& range : other.ranges_)
    add(range.lo, range.hi);
}

CharSet CharSet::complement() const {
  CharSet result;
  char32_t next = 0;
  for (const CodeRange& range : ranges_) {
    if (range.lo > next) result.add(next, range.lo - 1);
    next = range.hi + 1;
  }
  if (next <= kMaxCodePoint) result.add(next, kMaxCodePoint);
  return result;
}

CharSet CharSet::intersection(const CharSet& other) const {
  CharSet result;
  for (const CodeRange& a : ranges_) {
    for (const CodeRange& b : other.ranges_) {
      if (b.lo > a.hi) break;
      result.add(std::max(a.lo, b.lo), std::min(a.hi, b.hi));
    }
  }
  return result;
}

void CharSet::fold_ascii_case() {
  const CharSet lower = intersection(CharSet('a', 'z'));
  const CharSet upper = intersection(CharSet('A', 'Z'));
  for (const CodeRange& range : lower.ranges_)
    add(range.lo - 32, range.hi - 32);
  for (const CodeRange& range : upper.ranges_)
    add(range.lo + 32, range.hi + 32);
}

bool CharSet::contains(char32_t c) const {
  auto found = std::lower_bound(ranges_.begin(), ranges_.end(), c,
                                [](const CodeRange& range, char32_t value) { return range.hi < value; });
  return found != ranges_.end() && found->lo <= c;
}

bool decode_utf8(std::string_view text, std::u32string& out) {
  out.clear();
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xC2 && lead < 0xE0 ? 2
                               : lead >= 0xE0 && lead < 0xF0 ? 3
                               : lead >= 0xF0 && lead < 0xF5 ? 4
                                                             : 0;
    if (length == 0 || i + length > text.size()) return false;
    char32_t c = length == 1 ? lead : lead & (0x7Fu >> length);
    for (std::size_t k = 1; k < length; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      if ((byte & 0xC0) != 0x80) return false;
      c = c << 6 | (byte & 0x3Fu);
    }
    const bool overlong = (length == 3 && c < 0x800) || (length == 4 && c < 0x10000);
    if (overlong || c > kMaxCodePoint || (c >= kSurrogateFirst && c <= kSurrogateLast)) return false;
    out.push_back(c);
    i += length;
  }
  return true;
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace quire::grammar
