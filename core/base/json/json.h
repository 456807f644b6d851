// JSON as Quire reads and writes it. Parsing is strict (RFC 8259, valid UTF-8), bounded in depth and memory, and
// linear in the text's length; a repeated key's last value wins. Whole numbers beyond 64 bits keep their digits:
// nlohmann has no type for them, so they are values of the type binary, which JSON has no other use for. Texts that
// are escaped must be valid UTF-8. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/json/json_memory.h"
#include "core/base/result.h"
#include "core/base/work_limit.h"

namespace quire {

inline constexpr std::size_t kDefaultJsonDepth = 128;

// Errors: code "invalid_json" with the position, "json_too_deep", "request_too_large" (too many values), or
// WorkLimit::kCode if the limit was reached.
Result<Json> parse_json(std::string_view text, std::size_t max_depth = kDefaultJsonDepth, const WorkLimit& limit = {});

// Compact text; invalid UTF-8 becomes U+FFFD.
std::string dump_json(const Json& value);

// Text with Python's spaces after commas and colons, a form that models are used to.
std::string dump_spaced_json(const Json& value);

// The digits of a whole number beyond 64 bits; nullopt: another value.
std::optional<std::string> digits_beyond_64_bits(const Json& value);

// Appends `text` escaped, without quotes.
void append_json_escaped(std::string& out, std::string_view text);
// Appends `text` as a JSON string, with its quotes.
void append_json_string(std::string& out, std::string_view text);
std::string quote_json(std::string_view text);

}  // namespace quire
