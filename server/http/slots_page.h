// GET /slots: what the first model's engine computes, in llama-server's words: as many slots as sequences may run at
// once. A sequence has no slot of its own: a number stands for one of those that run now. Any thread.
#pragma once

#include "server/http/response.h"
#include "server/http/server_state.h"

namespace quire {

Response slots_page(ServerState& state);

}  // namespace quire
