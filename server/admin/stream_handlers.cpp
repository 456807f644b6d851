#include "server/admin/handlers.h"

#include <string>
#include <string_view>

#include "server/api/common/json.h"
#include "server/api/common/operation.h"
#include "server/ops/keys/admin.h"
#include "server/ops/stream_store.h"
#include "server/run/admin_task.h"
#include "server/state/server_state.h"

namespace quire {

Result<AdminTask> end_stream(ServerState& state, const Call& call) {
  constexpr std::string_view kFolder = "/v1/streams/";
  const std::string id = call.path.substr(kFolder.size());
  const auto stream = state.streams.find(call.key_name, id, Clock::now());
  if (!stream || stream->is_lost())
    return failure(ErrorKind::kNotFound, "No stream of this request id is kept", "stream_not_found");
  stream->revoke();
  return AdminTask{.finish = [id]() -> Result<std::string> {
    return dump_json(Json{{"id", id}, {"object", "stream.deleted"}, {"deleted", true}});
  }};
}

}  // namespace quire
