// The JSON of requests. Any thread.
#pragma once

#include "core/base/json/json.h"
#include "core/base/json/json_escape.h"

namespace quire {

// Calls parse_json() on a request's body. Further error: "invalid_type" if it is not an object.
Result<Json> parse_json_object(std::string_view body, const WorkLimit& limit = {});

}  // namespace quire
