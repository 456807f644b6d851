// Handler of GET /slots, in llama-server's format: the running sequences of the first model, and max_num_seqs slots in
// all. The numbers are given per answer, because Quire binds no sequence to a slot. Any thread.
#pragma once

#include "server/http/response.h"
#include "server/http/server_state.h"

namespace quire {

Response slots_response(ServerState& state);

}  // namespace quire
