// The web page at `/` and its files under `/ui/`, served from the binary. Any thread.
#pragma once

#include "server/http/response.h"
#include "server/http/server_state.h"

namespace quire::web {

Response index_page(ServerState& state);
Response style_sheet(ServerState& state);
Response main_script(ServerState& state);
Response chat_script(ServerState& state);
Response status_script(ServerState& state);

}  // namespace quire::web
