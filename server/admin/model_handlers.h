// Functions that the admin handlers share: checks of a call's files and body, and the sender's name. Any thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "server/api/common/json.h"
#include "server/api/fields/field.h"

namespace quire {

struct Call;
struct ServerState;

// Returns whether `path` lies in `folder`, judged by the path alone: a symbolic link in the folder is accepted, a path
// with ".." that leaves it is not.
bool is_below(const std::filesystem::path& path, const std::filesystem::path& folder);

// Checks that an admin's call may name this file: it is in server.model_root, or in the folder of a configured model or
// adapter. `field` names it in the refusal, 403 "path_not_allowed".
Result<void> check_path(const ServerState& state, const char* field, const std::filesystem::path& path);
// A JSON object; 400 "unknown_parameter" for a member that the table does not have.
Result<Json> parse_known_members(std::string_view body, const fields::FieldTable& table);
// The log's name for the sender of an admin's call.
std::string asker(const Call& call);

}  // namespace quire
