// UTF-8 and the Unicode facts that tokenizers need, over utf8proc, and GPT-2's byte alphabet. Any thread.
// Invariant: no function reads past the text it is given; invalid bytes are values (U+FFFD), never errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::unicode {

inline constexpr char32_t kReplacement = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

enum class Status : std::uint8_t { kValid, kInvalid, kTruncated };

// The character at the front of a text. kInvalid: `length` bytes (a maximal subpart, Unicode 3.9) that cannot become
// valid. kTruncated: the text ends inside a character that may yet become valid.
struct Decoded {
  char32_t code = kReplacement;
  std::uint8_t length = 0;
  Status status = Status::kInvalid;
};

Decoded decode(std::string_view text);  // text is not empty
void append(std::string& out, char32_t code);

bool is_ascii(std::string_view text);
bool is_valid(std::string_view text);
// Appends `text` with every invalid or truncated sequence as one U+FFFD.
void append_sanitized(std::string& out, std::string_view text);

enum class Form { kNfc, kNfd, kNfkc, kNfkd };
std::string normalize(std::string_view text, Form form);  // text is valid UTF-8
std::string lowercase(std::string_view text);
std::string strip_marks(std::string_view text);             // without its combining marks
std::string strip_nonspacing_marks(std::string_view text);  // without zero-width combining marks only

bool is_space(char32_t code);    // White_Space
bool is_word(char32_t code);     // a letter, mark, digit or connector
bool is_control(char32_t code);  // a category C: control, format, surrogate, private, not assigned
bool is_number(char32_t code);   // a category N
bool is_decimal(char32_t code);  // a decimal digit

// GPT-2's alphabet: maps each byte to a printable character, so that vocabularies can be written as text.
char32_t byte_to_char(std::uint8_t byte);
std::optional<std::uint8_t> char_to_byte(char32_t code);
// The bytes of a token written in that alphabet; nothing if it has other characters.
std::optional<std::string> bytes_from_alphabet(std::string_view text);

}  // namespace quire::unicode
