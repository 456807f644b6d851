#include "core/text/unicode.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "kernels/check.h"

namespace quire::unicode {
namespace {

// Bytes that the alphabet maps to themselves; the others follow from U+0100 on, in order.
constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::size_t kAlphabetEnd = 0x144;  // end of the alphabet

struct Alphabet {
  std::array<char32_t, 256> char_of{};
  std::array<std::int16_t, kAlphabetEnd> byte_of{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte_of)
    byte = -1;
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t code = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.char_of[byte] = code;
    alphabet.byte_of[code] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

std::string map(std::string_view text, unsigned options) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &mapped, static_cast<utf8proc_option_t>(options));
  QUIRE_CHECK(size >= 0, "normalisation is given valid UTF-8");
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(size));
}

// Length of a sequence by its lead byte, and the range of the second byte (Unicode 3.9, table 3-7).
struct Lead {
  std::uint8_t length = 0;
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xBF;
};

Lead lead_of(std::uint8_t byte) {
  if (byte < 0xC2 || byte > 0xF4) return {};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0)
    return {3, static_cast<std::uint8_t>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<std::uint8_t>(byte == 0xED ? 0x9F : 0xBF)};
  return {4, static_cast<std::uint8_t>(byte == 0xF0 ? 0x90 : 0x80),
          static_cast<std::uint8_t>(byte == 0xF4 ? 0x8F : 0xBF)};
}

}  // namespace

Decoded decode(std::string_view text) {
  const auto byte_at = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte_at(0);
  if (first < 0x80) return {first, 1, Status::kValid};
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {kReplacement, 1, Status::kInvalid};
  char32_t code = first & (0xFFU >> (lead.length + 1));
  for (std::uint8_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {kReplacement, i, Status::kTruncated};
    const std::uint8_t byte = byte_at(i);
    const bool fits = i == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xC0) == 0x80;
    if (!fits) return {kReplacement, i, Status::kInvalid};
    code = (code << 6) | (byte & 0x3F);
  }
  return {code, lead.length, Status::kValid};
}

void append(std::string& out, char32_t code) {
  const auto put = [&](char32_t bits) { out += static_cast<char>(static_cast<unsigned char>(bits)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

namespace {

// Number of ASCII bytes at the front of the text, eight at a time.
std::size_t ascii_prefix(std::string_view text) {
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080ULL) != 0) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80)
    ++at;
  return at;
}

}  // namespace

bool is_ascii(std::string_view text) {
  return ascii_prefix(text) == text.size();
}

bool is_valid(std::string_view text) {
  while (true) {
    text.remove_prefix(ascii_prefix(text));
    if (text.empty()) return true;
    const Decoded decoded = decode(text);
    if (decoded.status != Status::kValid) return false;
    text.remove_prefix(decoded.length);
  }
}

void append_sanitized(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const Decoded decoded = decode(text);
    out += decoded.status == Status::kValid ? text.substr(0, decoded.length) : kReplacementUtf8;
    text.remove_prefix(decoded.length);
  }
}

std::string normalize(std::string_view text, Form form) {
  if (is_ascii(text)) return std::string(text);
  switch (form) {
    case Form::kNfc: return map(text, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    case Form::kNfd: return map(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    case Form::kNfkc: return map(text, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case Form::kNfkd: return map(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
  return std::string(text);
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Decoded decoded = decode(text);
    // Only U+0130 has a lower case of two characters.
    if (decoded.code == 0x130) {
      out += "i\xCC\x87";
    } else {
      append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(decoded.code))));
    }
    text.remove_prefix(decoded.length);
  }
  return out;
}

namespace {

utf8proc_category_t category_of(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

// The text without characters of the categories from `first` to `last`.
std::string without(std::string_view text, utf8proc_category_t first, utf8proc_category_t last) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Decoded decoded = decode(text);
    const auto category = category_of(decoded.code);
    if (category < first || category > last) append(out, decoded.code);
    text.remove_prefix(decoded.length);
  }
  return out;
}

}  // namespace

std::string strip_marks(std::string_view text) {
  return without(text, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

std::string strip_nonspacing_marks(std::string_view text) {
  return without(text, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MN);
}

bool is_control(char32_t code) {
  const auto category = category_of(code);
  return category == UTF8PROC_CATEGORY_CN || (category >= UTF8PROC_CATEGORY_CC && category <= UTF8PROC_CATEGORY_CO);
}

bool is_number(char32_t code) {
  const auto category = category_of(code);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_decimal(char32_t code) {
  return category_of(code) == UTF8PROC_CATEGORY_ND;
}

bool is_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  if (code == 0x85) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

bool is_word(char32_t code) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ME) || category == UTF8PROC_CATEGORY_ND ||
         category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC;
}

char32_t byte_to_char(std::uint8_t byte) {
  return kAlphabet.char_of[byte];
}

std::optional<std::uint8_t> char_to_byte(char32_t code) {
  if (code >= kAlphabetEnd || kAlphabet.byte_of[code] < 0) return std::nullopt;
  return static_cast<std::uint8_t>(kAlphabet.byte_of[code]);
}

std::optional<std::string> bytes_from_alphabet(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const Decoded decoded = decode(text);
    const auto byte = decoded.status == Status::kValid ? char_to_byte(decoded.code) : std::nullopt;
    if (!byte) return std::nullopt;
    bytes += static_cast<char>(*byte);
    text.remove_prefix(decoded.length);
  }
  return bytes;
}

}  // namespace quire::unicode
