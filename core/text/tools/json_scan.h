// Reading JSON that may be incomplete: the text that a model has written so far. Any thread; pure functions. Invariant:
// the reading of a text's beginning is a beginning of the reading of the whole text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json/json.h"

namespace quire {

enum class ScanStatus { kComplete, kPartial, kMalformed };

enum class JsonSpacing { kCompact, kSpaced };  // {"a":1,"b":2} or {"a": 1, "b": 2}

struct JsonScan {
  ScanStatus status = ScanStatus::kMalformed;
  std::size_t end = 0;  // end of the value or text, or position of the error
  std::string text;     // the value (so far) with regular spacing; control characters inside strings are escaped
};

// The JSON value that begins at `position` (white space before it is skipped). At most kMaxJsonNesting deep.
JsonScan scan_json(std::string_view text, std::size_t position, JsonSpacing spacing);

// The members of the object that begins at `position`, as far as they are written.
struct JsonMember {
  std::string key;
  std::size_t begin = 0;  // position of the value
  JsonScan value;
};
struct JsonMembers {
  ScanStatus status = ScanStatus::kMalformed;
  std::size_t end = 0;
  std::vector<JsonMember> members;  // the last one may be partial
};
JsonMembers scan_members(std::string_view text, std::size_t position, JsonSpacing spacing);

// A JSON string's characters; nothing where `json` is not a whole string.
std::optional<std::string> decode_json_string(std::string_view json);

inline constexpr auto kNowhere = std::string_view::npos;
std::size_t skip_white_space(std::string_view text, std::size_t position);
std::string_view trim_end(std::string_view text);
std::string_view trim(std::string_view text);

}  // namespace quire
