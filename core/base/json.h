// JSON as Quire takes and gives it. Parsing is strict (RFC 8259, valid UTF-8), bounded in depth and memory, linear in
// the text's length whatever it holds; a repeated key's last value wins. Whole numbers beyond 64 bits keep their
// digits: nlohmann has no type for them, so they are values of the type binary, which JSON has no other use for. Any
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/json_memory.h"
#include "core/base/result.h"
#include "core/base/work_limit.h"

namespace quire {

inline constexpr std::size_t kDefaultJsonDepth = 128;

// Errors: code "invalid_json" with the position, "json_too_deep", "request_too_large" (too many values), or
// WorkLimit::kCode where the limit was reached.
Result<Json> parse_json(std::string_view text, std::size_t max_depth = kDefaultJsonDepth, const WorkLimit& limit = {});

// Compact text; bytes that are not UTF-8 come out as U+FFFD.
std::string dump_json(const Json& value);

// The same with Python's spaces after commas and colons, as models write JSON.
std::string dump_spaced_json(const Json& value);

// The digits of a whole number beyond 64 bits; nullopt: the value is none.
std::optional<std::string> digits_beyond_64_bits(const Json& value);

}  // namespace quire
