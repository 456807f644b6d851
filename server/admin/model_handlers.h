// Handlers of /admin/models: load, unload, replace, sleep, wake. They run on the admin thread; any thread. A body is
// {"name": NAME} and those of its table in server/api/fields/admin.h; unknown fields are refused. The answer is the
// model's report, sent when the operation is done, or with "wait": false immediately (202). The paths of llama-server's
// router and of vLLM lead here too: there `model` is an alias of `name`, and the default is the first model.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "server/api/common/json.h"
#include "server/api/common/operation.h"
#include "server/api/fields/field.h"
#include "server/state/server_state.h"

namespace quire {

// Returns whether `path` lies in `folder`, judged by the path alone: a symbolic link in the folder is accepted, a path
// with ".." that leaves it is not.
bool is_below(const std::filesystem::path& path, const std::filesystem::path& folder);

// Checks that an admin's call may name this file: it is in server.model_root, or in the folder of a configured model or
// adapter. `field` names it in the refusal, 403 "path_not_allowed".
Result<void> check_path(const ServerState& state, const char* field, const std::filesystem::path& path);
// A JSON object; 400 "unknown_parameter" for a member that the table does not have.
Result<Json> parse_known_members(std::string_view body, const fields::FieldTable& table);

Result<AdminTask> admin_list_models(ServerState& state, const Call& call);
Result<AdminTask> admin_load_model(ServerState& state, const Call& call);  // path, aliases, sleep_after, kv_memory, ...
Result<AdminTask> admin_unload_model(ServerState& state, const Call& call);
Result<AdminTask> admin_sleep_model(ServerState& state, const Call& call);
Result<AdminTask> admin_wake_model(ServerState& state, const Call& call);
Result<AdminTask> admin_replace_model(ServerState& state, const Call& call);  // path, mode: beside, in_place
Result<AdminTask> admin_is_sleeping(ServerState& state, const Call& call);

}  // namespace quire
