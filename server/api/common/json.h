// Parses requests' JSON, and writes large objects member by member, without a tree of the whole. Any thread.
#pragma once

#include <string>

#include "core/base/json/json.h"

namespace quire {

// Calls parse_json() on a request's body. Further error: "invalid_type" if it is not an object.
Result<Json> parse_json_object(std::string_view body, const WorkLimit& limit = {});

// The object's text without the closing brace.
std::string dump_opened(const Json& object);
// Further members, each with a comma before it.
std::string dump_members(const Json& object);

}  // namespace quire
