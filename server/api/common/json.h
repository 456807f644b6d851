// The JSON of requests. Any thread.
#pragma once

#include "core/base/json.h"
#include "core/base/json_escape.h"

namespace quire {

// parse_json() of a request's body. Errors also: "invalid_type" where it is no object.
Result<Json> parse_json_object(std::string_view body, const WorkLimit& limit = {});

}  // namespace quire
