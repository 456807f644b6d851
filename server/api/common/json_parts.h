// Texts of JSON objects that are written in parts, because their trees would be large. Pure functions; any thread.
#pragma once

#include <string>

#include "server/api/common/json.h"

namespace quire {

// The members with the brace before them.
std::string dump_opened(const Json& object);
// Further members, each with a comma before it.
std::string dump_members(const Json& object);

}  // namespace quire
