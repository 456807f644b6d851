// Handlers of /slots, in llama-server's format. GET: the running sequences of the first model, and max_num_seqs slots
// in all; the numbers are given per answer, because Quire binds no sequence to a slot. POST, for admins: saves,
// restores or erases a slot's conversation; on the admin thread. Any thread.
#pragma once

#include "server/admin/report_reader.h"
#include "server/api/common/operation.h"
#include "server/state/server_state.h"
#include "server/wire/response.h"

namespace quire {

Response slots_response(ServerState& state, const ReportReader& reader);

// POST /slots/{id}?action=save|restore|erase with {"filename": NAME}, a file of server.slots.directory.
Result<AdminTask> act_on_slot(ServerState& state, const Call& call);

}  // namespace quire
