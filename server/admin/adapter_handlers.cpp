#include "server/admin/handlers.h"

#include "core/base/log.h"
#include "core/base/message_text.h"
#include "server/admin/model_handlers.h"
#include "server/api/common/errors.h"
#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"
#include "server/api/fields/admin.h"
#include "server/ops/keys/admin.h"
#include "server/run/admin_task.h"
#include "server/state/server_state.h"

namespace quire {

namespace {

Result<AdapterOrder> read_load(const ServerState& state, FieldReader& reader) {
  AdapterOrder order;
  order.adapter = {.name = reader.string(fields::admin::kLoraName).value_or(""),
                   .path = reader.string(fields::admin::kLoraPath).value_or(""),
                   .is_configured = false};
  order.in_place = reader.boolean(fields::admin::kLoadInplace, false);
  order.model = reader.string(fields::admin::kModel).value_or("");
  if (reader.error()) return tl::make_unexpected(*reader.error());
  if (order.adapter.name.empty() || order.adapter.path.empty()) {
    return invalid("Both 'lora_name' and 'lora_path' must be provided.",
                   order.adapter.name.empty() ? "lora_name" : "lora_path", "missing_required_parameter");
  }
  if (!is_model_name(order.adapter.name)) return invalid("'lora_name' must be a name without spaces", "lora_name");
  if (const auto allowed = check_path(state, "lora_path", order.adapter.path); !allowed)
    return tl::make_unexpected(allowed.error());
  return order;
}

Result<AdapterOrder> read_unload(FieldReader& reader) {
  AdapterOrder order;
  order.unloads = true;
  order.adapter.name = reader.string(fields::admin::kLoraName).value_or("");
  reader.integer(fields::admin::kLoraIntId);  // vLLM's field; the name alone identifies the adapter
  if (reader.error()) return tl::make_unexpected(*reader.error());
  if (order.adapter.name.empty()) {
    return invalid("'lora_name' needs to be provided to unload a LoRA adapter.", "lora_name",
                   "missing_required_parameter");
  }
  return order;
}

Result<AdminTask> give_adapter_order(ServerState& state, const Call& call, bool unloads) {
  if (!state.admin.order_adapter || !state.models()) return tl::make_unexpected(still_starting());
  const fields::FieldTable& table = unloads ? fields::kUnloadAdapterFields : fields::kLoadAdapterFields;
  const auto parsed = parse_known_members(call.body.empty() ? "{}" : call.body, table);
  if (!parsed) return tl::make_unexpected(parsed.error());
  FieldReader reader(*parsed);
  const auto order = unloads ? read_unload(reader) : read_load(state, reader);
  if (!order) return tl::make_unexpected(order.error());
  const std::string& name = order->adapter.name;
  log::info("admin: {} asks to {} the adapter {}{}{}", asker(call), unloads ? "unload" : "load", printable(name),
            unloads ? "" : ": ", printable(order->adapter.path.string()));
  const std::string text = "Success: LoRA adapter '" + name + "' " + (unloads ? "removed" : "added") + " successfully.";
  return AdminTask{.until = [&state, order = *order](auto done) { state.admin.order_adapter(order, done); },
                   .finish = [text]() -> Result<std::string> { return text; },
                   .content_type = "text/plain; charset=utf-8"};
}

}  // namespace

Result<AdminTask> admin_load_adapter(ServerState& state, const Call& call) {
  return give_adapter_order(state, call, false);
}

Result<AdminTask> admin_unload_adapter(ServerState& state, const Call& call) {
  return give_adapter_order(state, call, true);
}

}  // namespace quire
