// JSON as the server takes and gives it. Parsing is strict (RFC 8259, valid UTF-8), bounded in depth and memory, linear
// in the body's length whatever it holds; a repeated key's last value wins. Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/json_escape.h"
#include "core/base/result.h"
#include "core/base/work_limit.h"

namespace quire {

using Json = nlohmann::ordered_json;

inline constexpr std::size_t kDefaultJsonDepth = 128;

// Errors: code "invalid_json" with the position, "json_too_deep", "request_too_large" (too many values), or
// WorkLimit::kCode where the limit was reached.
Result<Json> parse_json(std::string_view text, std::size_t max_depth = kDefaultJsonDepth, const WorkLimit& limit = {});

// The same of a request's body. Errors also: "invalid_type" where it is no object.
Result<Json> parse_json_object(std::string_view body, const WorkLimit& limit = {});

// Compact text; bytes that are not UTF-8 come out as U+FFFD.
std::string dump_json(const Json& value);

}  // namespace quire
