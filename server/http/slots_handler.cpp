#include "server/http/slots_handler.h"

#include <algorithm>

#include "server/api/common/errors.h"
#include "server/models/running_model.h"

namespace quire {

namespace {

Json slot_json(std::int64_t id, std::int64_t context, const SequenceView* sequence) {
  Json slot{{"id", id},
            {"id_task", sequence == nullptr ? Json(-1) : Json(sequence->request_id)},
            {"n_ctx", context},
            {"speculative", false},
            {"is_processing", sequence != nullptr}};
  if (sequence == nullptr) return slot;
  slot["n_prompt_tokens"] = sequence->num_prompt_tokens;
  slot["n_prompt_tokens_processed"] = std::min(sequence->num_computed, sequence->num_prompt_tokens);
  slot["next_token"] = {{"has_next_token", true}, {"n_decoded", sequence->num_tokens - sequence->num_prompt_tokens}};
  return slot;
}

}  // namespace

Response slots_response(ServerState& state) {
  const auto table = state.models();
  if (!table || table->entries().empty() || !table->entries().front().running) return error_response(still_starting());
  const TableEntry& model = table->entries().front();
  const auto view = model.running->view();
  Json slots = Json::array();
  for (const SequenceView& sequence : view.sequences) {
    if (sequence.is_running) slots.push_back(slot_json(std::ssize(slots), model.max_model_len, &sequence));
  }
  // The engine lists its sequences while they are asked for; until then their number is known.
  const auto num_running = static_cast<std::int64_t>(model.running->stats().num_running);
  const std::int64_t num_slots = std::max<std::int64_t>(model.served ? model.served->max_num_choices : 0, num_running);
  while (std::ssize(slots) < num_slots) {
    slots.push_back(slot_json(std::ssize(slots), model.max_model_len, nullptr));
    if (std::ssize(slots) <= num_running) slots.back()["is_processing"] = true;
  }
  Response response{200, "application/json", dump_json(slots)};
  response.fields = {{"Cache-Control", "no-store"}};
  return response;
}

}  // namespace quire
