// The pages by which an admin loads, unloads and replaces models and puts them to sleep. Run on a text thread; any
// thread. A body is {"name": NAME} and, as each says, more; unknown members are refused. The answer comes when it is
// done, or with "wait": false at once (202); it is the model's report. Names as llama-server's router and vLLM have
// them lead here too: `model` stands for `name`, and without a name the first model is meant.
#pragma once

#include <filesystem>

#include "server/api/common/operation.h"
#include "server/http/server_state.h"

namespace quire {

// Whether `path` lies in `folder`. By name alone: what an operator links to from there may be used, and a path that
// climbs is refused.
bool is_below(const std::filesystem::path& path, const std::filesystem::path& folder);

Result<AdminTask> admin_list_models(ServerState& state, const Call& call);
Result<AdminTask> admin_load_model(ServerState& state, const Call& call);  // path, aliases, sleep_after, kv_memory, ...
Result<AdminTask> admin_unload_model(ServerState& state, const Call& call);
Result<AdminTask> admin_sleep_model(ServerState& state, const Call& call);
Result<AdminTask> admin_wake_model(ServerState& state, const Call& call);
Result<AdminTask> admin_replace_model(ServerState& state, const Call& call);  // path, mode: beside, in_place
Result<AdminTask> admin_is_sleeping(ServerState& state, const Call& call);

}  // namespace quire
