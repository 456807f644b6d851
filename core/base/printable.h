// Text or bytes from a file or a client, made fit for one line of a message or a log. Any thread; pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace quire {

// Control characters and bytes above ASCII as \xNN; no more than max_length bytes of the text are shown.
std::string printable(std::string_view text, std::size_t max_length = 80);

// Unchanged UTF-8 text; if it is longer than max_bytes, cut before a character, with "..." appended.
std::string shortened(std::string text, std::size_t max_bytes);

// Two lower-case hexadecimal digits for each byte.
std::string hex_digits(std::span<const unsigned char> bytes);

}  // namespace quire
