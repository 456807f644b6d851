// Text for messages and logs: foreign bytes made fit for one line, and the name that a misspelt one was likely meant to
// be. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Control characters and bytes above ASCII as \xNN; no more than max_length bytes of the text are shown.
std::string printable(std::string_view text, std::size_t max_length = 80);

// Unchanged UTF-8 text; if it is longer than max_bytes, cut before a character, with "..." appended.
std::string shortened(std::string text, std::size_t max_bytes);

// Two lower-case hexadecimal digits for each byte.
std::string hex_digits(std::span<const unsigned char> bytes);

// The name with the fewest letters to insert, delete, change or swap; the first of equals; empty if `names` is.
std::string_view nearest_name(std::string_view written, const std::vector<std::string_view>& names);

// The nearest name if it is likely what was meant: at most a third of the written letters differ.
std::optional<std::string_view> likely_name(std::string_view written, const std::vector<std::string_view>& names);

}  // namespace quire
