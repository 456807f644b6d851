#include "core/grammar/machine/byte_lexer.h"

#include <algorithm>

namespace quire::grammar {

namespace {

constexpr char32_t kHighFirst = 0xD800;
constexpr char32_t kLowFirst = 0xDC00;
constexpr char32_t kLowLast = 0xDFFF;

int hex_digit(std::uint8_t byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  const int lower = static_cast<int>(byte | 0x20u);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Reserves memory for another element, so that adding it cannot fail.
template <class Element>
void grow(std::vector<Element>& elements) {
  if (elements.size() == elements.capacity()) elements.reserve(2 * elements.size() + 1);
}

}  // namespace

ByteLexer::ByteLexer(DfaPtr dfa, Encoding encoding) : dfa_(std::move(dfa)), encoding_(encoding) {
  rows_.resize(dfa_->num_states());
  const std::size_t width = dfa_->alphabet.num_classes();
  for (std::size_t state = 0; state < dfa_->num_states(); ++state) {
    const auto row = dfa_->next.begin() + static_cast<std::ptrdiff_t>(state * width);
    final_.push_back(
        std::all_of(row, row + static_cast<std::ptrdiff_t>(width), [](std::uint32_t t) { return t == 0; }));
  }
}

char32_t decode_json_character(std::string_view bytes) {
  if (bytes[0] != '\\') {
    std::u32string decoded;
    return decode_utf8(bytes, decoded) && decoded.size() == 1 ? decoded[0] : 0;
  }
  constexpr std::string_view kLetters = "bfnrt";
  constexpr std::string_view kMeanings = "\b\f\n\r\t";
  if (bytes[1] != 'u') {
    const std::size_t letter = kLetters.find(bytes[1]);
    return static_cast<unsigned char>(letter == std::string_view::npos ? bytes[1] : kMeanings[letter]);
  }
  const auto unit = [&](std::size_t at) {
    char32_t value = 0;
    for (std::size_t i = at; i < at + 4; ++i)
      value = value << 4 | static_cast<char32_t>(hex_digit(static_cast<std::uint8_t>(bytes[i])));
    return value;
  };
  const char32_t high = unit(2);
  return bytes.size() < 12 ? high : 0x10000 + ((high - kHighFirst) << 10) + (unit(8) - kLowFirst);
}

std::string canonical_json(char32_t c) {
  constexpr std::u32string_view kEscaped = U"\"\\\b\f\n\r\t";
  constexpr std::string_view kLetters = "\"\\bfnrt";
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  const std::size_t at = kEscaped.find(c);
  if (at != std::u32string_view::npos) return {'\\', kLetters[at]};
  if (c >= 0x20) {
    append_utf8(text, c);
    return text;
  }
  return {'\\', 'u', '0', '0', kDigits[c >> 4], kDigits[c & 0xFu]};
}

bool ByteLexer::add_few_characters(std::uint32_t state, std::size_t most, std::u32string& found) const {
  const auto& starts = dfa_->alphabet.starts();
  std::size_t num_following = 0;
  for (std::size_t run = 0; run < starts.size(); ++run) {
    if (dfa_->next[state * dfa_->alphabet.num_classes() + dfa_->alphabet.run_classes()[run]] == 0) continue;
    const char32_t end = run + 1 < starts.size() ? starts[run + 1] : kMaxCodePoint + 1;
    if (end - starts[run] > 1 || ++num_following > most) return false;
    if (found.find(starts[run]) == std::u32string::npos) found.push_back(starts[run]);
  }
  return true;
}

ByteLexer::Row& ByteLexer::compute_row(std::uint32_t state) {
  auto row = std::make_unique<Row>();
  if (state != 0) {
    const Partial from =
        state < dfa_->num_states() ? Partial{Stage::kNone, 0, state, 0} : partials_[state - dfa_->num_states()];
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      row->next[byte] = step_partial(from, static_cast<std::uint8_t>(byte));
      if (row->next[byte] != 0) row->live.add(static_cast<std::uint8_t>(byte));
    }
  }
  rows_[state] = std::move(row);
  prepared.add(sizeof(Row));
  return *rows_[state];
}

void ByteLexer::drop_prepared() {
  for (std::unique_ptr<Row>& row : rows_)
    row.reset();
  contexts.reset();
  prepared.clear();
}

std::size_t ByteLexer::num_bytes() const {
  constexpr std::size_t kOfPartial = 128;  // bytes of a partial state and its index entry
  return dfa_->num_bytes() + rows_.size() * sizeof(rows_[0]) + partials_.size() * kOfPartial;
}

std::uint32_t ByteLexer::complete(std::uint32_t code, char32_t c) const {
  const std::uint32_t target = dfa_->step(code, c);
  return target == 0 ? 0 : target | kCompletes;
}

std::uint32_t ByteLexer::step_partial(const Partial& from, std::uint8_t byte) {
  switch (from.stage) {
    case Stage::kNone: return step_first(from.code, byte);
    case Stage::kUtf8:
      if ((byte & 0xC0) != 0x80 || (from.value == 0 && byte < (from.left == 3 ? 0x90 : 0xA0))) return 0;
      return open_utf8(from.code, from.value << 6 | (byte & 0x3Fu), static_cast<std::uint8_t>(from.left - 1));
    case Stage::kUtf8Uniform:
      if ((byte & 0xC0) != 0x80) return 0;
      if (from.left == 1) return from.code | kCompletes;
      return intern({Stage::kUtf8Uniform, static_cast<std::uint8_t>(from.left - 1), from.code, 0});
    case Stage::kEscape: return step_escape(from.code, byte);
    case Stage::kLowSlash: return byte == '\\' ? intern({Stage::kLowU, 0, from.code, from.value}) : 0;
    case Stage::kLowU: return byte == 'u' ? intern({Stage::kLowHex, 4, from.code, from.value}) : 0;
    case Stage::kHex:
    case Stage::kHexUniform:
    case Stage::kLowHex: return step_hex(from, byte);
  }
  return 0;
}

std::uint32_t ByteLexer::step_first(std::uint32_t code, std::uint8_t byte) {
  if (byte < 0x80) {
    if (encoding_ == Encoding::kUtf8) return complete(code, byte);
    if (byte == '\\') return any_live(code, 0, kMaxCodePoint) ? intern({Stage::kEscape, 0, code, 0}) : 0;
    return byte < 0x20 || byte == '"' ? 0 : complete(code, byte);
  }
  if (byte >= 0xC2 && byte < 0xE0) return open_utf8(code, byte & 0x1Fu, 1);
  if (byte >= 0xE0 && byte < 0xF0) return open_utf8(code, byte & 0x0Fu, 2);
  if (byte >= 0xF0 && byte < 0xF5) return open_utf8(code, byte & 0x07u, 3);
  return 0;
}

std::uint32_t ByteLexer::open_utf8(std::uint32_t code, std::uint32_t value, std::uint8_t left) {
  if (left == 0) return complete(code, value);
  const char32_t lo = std::max<char32_t>(value << 6 * left, first_of_form(value, left));
  const char32_t hi = std::min<char32_t>((value << 6 * left) + (1u << 6 * left) - 1, kMaxCodePoint);
  if (lo > hi) return 0;
  std::uint32_t only = 0;
  bool live = false;
  const bool whole = lo == value << 6 * left && hi == lo + (1u << 6 * left) - 1;
  if (uniform(code, lo, hi, only, live) && whole) return intern({Stage::kUtf8Uniform, left, only, 0});
  return live ? intern({Stage::kUtf8, left, code, value}) : 0;
}

bool ByteLexer::uniform(std::uint32_t code, char32_t lo, char32_t hi, std::uint32_t& only, bool& live) const {
  bool first = true;
  bool same = true;
  live = false;
  targets_in(code, lo, hi, [&](std::uint32_t target) {
    if (target != 0) live = true;
    if (first) only = target;
    if (target != only) same = false;
    first = false;
  });
  return same && live;
}

bool ByteLexer::any_live(std::uint32_t code, char32_t lo, char32_t hi) const {
  std::uint32_t only = 0;
  bool live = false;
  uniform(code, lo, hi, only, live);
  return live;
}

std::uint32_t ByteLexer::step_escape(std::uint32_t code, std::uint8_t byte) {
  switch (byte) {
    case '"':
    case '\\':
    case '/': return complete(code, byte);
    case 'b': return complete(code, '\b');
    case 'f': return complete(code, '\f');
    case 'n': return complete(code, '\n');
    case 'r': return complete(code, '\r');
    case 't': return complete(code, '\t');
    case 'u': return open_hex(code, 0, 4, Stage::kHex);
    default: return 0;
  }
}

std::uint32_t ByteLexer::step_hex(const Partial& from, std::uint8_t byte) {
  const int digit = hex_digit(byte);
  if (digit < 0) return 0;
  const auto left = static_cast<std::uint8_t>(from.left - 1);
  if (from.stage == Stage::kHexUniform) {
    return left == 0 ? from.code | kCompletes : intern({Stage::kHexUniform, left, from.code, 0});
  }
  if (from.stage == Stage::kHex)
    return open_hex(from.code, from.value << 4 | static_cast<std::uint32_t>(digit), left, from.stage);
  // The second half of a surrogate pair: `value` holds the high surrogate above its 16 bits.
  const std::uint32_t low = (from.value & 0xFFFF) << 4 | static_cast<std::uint32_t>(digit);
  return open_hex(from.code, (from.value & 0xFFFF0000) | low, left, from.stage);
}

std::uint32_t ByteLexer::open_hex(std::uint32_t code, std::uint32_t value, std::uint8_t left, Stage stage) {
  if (stage == Stage::kLowHex) {
    const char32_t high = value >> 16;
    char32_t lo = std::max<char32_t>((value & 0xFFFF) << 4 * left, kLowFirst);
    char32_t hi = std::min<char32_t>(((value & 0xFFFF) << 4 * left) + (1u << 4 * left) - 1, kLowLast);
    if (lo > hi) return 0;
    lo = 0x10000 + ((high - kHighFirst) << 10) + (lo - kLowFirst);
    hi = 0x10000 + ((high - kHighFirst) << 10) + (hi - kLowFirst);
    if (left == 0) return complete(code, lo);
    return any_live(code, lo, hi) ? intern({stage, left, code, value}) : 0;
  }
  const char32_t lo = value << 4 * left;
  const char32_t hi = lo + (1u << 4 * left) - 1;
  const bool surrogates = hi >= kHighFirst && lo <= kLowLast;
  if (left == 0) {
    if (!surrogates) return complete(code, lo);
    if (lo >= kLowFirst) return 0;
    const char32_t first = 0x10000 + ((lo - kHighFirst) << 10);
    return any_live(code, first, first + 0x3FF) ? intern({Stage::kLowSlash, 0, code, value << 16}) : 0;
  }
  std::uint32_t only = 0;
  bool live = false;
  if (!surrogates && uniform(code, lo, hi, only, live)) return intern({Stage::kHexUniform, left, only, 0});
  live = any_live(code, lo, hi);
  if (!live && hi >= kHighFirst && lo < kLowFirst) {
    const char32_t from = 0x10000 + ((std::max<char32_t>(lo, kHighFirst) - kHighFirst) << 10);
    live = any_live(code, from, 0x10000 + ((std::min<char32_t>(hi, kLowFirst - 1) - kHighFirst) << 10) + 0x3FF);
  }
  return live ? intern({Stage::kHex, left, code, value}) : 0;
}

std::uint32_t ByteLexer::intern(const Partial& partial) {
  const std::uint64_t key = (static_cast<std::uint64_t>(partial.code) << 32 | partial.value) * 0x9E3779B97F4A7C15ull ^
                            (static_cast<std::uint64_t>(partial.stage) << 8 | partial.left);
  std::vector<std::uint32_t>& alike = known_[key];
  for (const std::uint32_t id : alike) {
    const Partial& other = partials_[id - dfa_->num_states()];
    if (other.stage == partial.stage && other.left == partial.left && other.code == partial.code &&
        other.value == partial.value) {
      return id;
    }
  }
  const auto id = static_cast<std::uint32_t>(rows_.size());
  // Reserves all memory first: a failure must not leave the lexer half changed, since other requests use it too.
  grow(partials_);
  grow(rows_);
  alike.push_back(id);
  partials_.push_back(partial);
  rows_.emplace_back();
  return id;
}

}  // namespace quire::grammar
