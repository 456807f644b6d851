// The handlers of paths that are about the server: health, reports, documents, and what an admin changes. Stateless, so
// any thread: an AdminTask is made on the admin thread, a report on the reports thread, the rest on a session's own.
// ReportReader: rights of a reader of reports. Admins' bodies refuse unknown fields.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/json/json_fwd.h"
#include "core/base/result.h"

namespace quire {

struct AdminTask;
struct Call;
struct RequestHead;
struct Response;
struct ServerState;
namespace metrics {
struct MetricFamily;
}

struct ReportReader {
  bool sees_keys = false;  // names of keys: the reader has a key, or none exist
  bool sees_all = false;   // ids of all requests: an admin
  std::string key_name = {};

  // A request's id gives access to its stream, so only its owner sees it.
  bool sees_id_of(std::string_view owner) const { return sees_all || (!key_name.empty() && owner == key_name); }
};

// status_handlers.cpp
Response livez(ServerState& state);     // 503 where only a restart helps
Response readyz(ServerState& state);    // 200 while new requests are accepted
Response startupz(ServerState& state);  // 200 once the models are loaded
Response metrics_response(ServerState& state, const ReportReader& reader);
Response version_response(ServerState& state);

// status_view.cpp
// Adds a point to the history of every model that runs. Once a second.
void sample_status(ServerState& state);
// GET /status: each model's pool, sequences, last steps and history. Each reader sees the ids of its own requests, and
// the place of others in the list.
Response status_view(ServerState& state, const ReportReader& reader);

// state_metrics.cpp
// Metrics of build and process, of the models' states and the queues of the text threads.
std::vector<metrics::MetricFamily> state_families(const ServerState& state);
double resident_bytes();  // resident memory of this process

// openapi_handler.cpp
// The API's reference for this build's routes, as an OpenAPI 3.1 document.
Json served_openapi();
Response openapi_response(ServerState& state, const ReportReader& reader);

// page_files.cpp: the module `page`
// The file of the page that the path names: compressed if the client takes gzip, 304 if the client has it already.
Response page_file(const RequestHead& head);

// admin_handlers.cpp
// POST /admin/reload: reads the configuration again.
Result<AdminTask> admin_reload(ServerState& state, const Call& call);
// POST /admin/trace?seconds=N: records the engines of all ready models for N seconds, in Perfetto's format.
Result<AdminTask> admin_trace(ServerState& state, const Call& call);
// GET /admin/cache: the number of full blocks in each ready model's pool and the exclusive or of their hashes, for
// subscribers of kv_cache.events.
Result<AdminTask> admin_cache(ServerState& state, const Call& call);

// model_handlers.cpp: a body is {"name": NAME} and the fields of the operation. The answer is the model's report, sent
// when the operation is done, or with "wait": false immediately (202). The paths of llama-server's router and of vLLM
// lead here too: there `model` is an alias of `name`, and the default is the first model.
Result<AdminTask> admin_list_models(ServerState& state, const Call& call);
Result<AdminTask> admin_load_model(ServerState& state, const Call& call);  // path, aliases, sleep_after, kv_memory, ...
Result<AdminTask> admin_unload_model(ServerState& state, const Call& call);
Result<AdminTask> admin_sleep_model(ServerState& state, const Call& call);
Result<AdminTask> admin_wake_model(ServerState& state, const Call& call);
Result<AdminTask> admin_replace_model(ServerState& state, const Call& call);  // path, mode: beside, in_place
Result<AdminTask> admin_is_sleeping(ServerState& state, const Call& call);

// adapter_handlers.cpp: vLLM's answers, a line of text once the adapter is usable
Result<AdminTask> admin_load_adapter(ServerState& state,
                                     const Call& call);  // lora_name, lora_path, load_inplace, model
Result<AdminTask> admin_unload_adapter(ServerState& state, const Call& call);  // lora_name

// pull_handlers.cpp: the module `hub`. server.pull sets the limits; the hub, its cache and the token come from the
// environment. Ollama's paths need an admin's key too.
// POST /admin/models/pull: {"model": OWNER/NAME[@REVISION][:QUANTISATION]}. "stream": server-sent events; "wait":
// false: 202 at once. "load": true adds it to the served models, as "name"; its first request loads it.
Result<AdminTask> admin_pull_model(ServerState& state, const Call& call);
// POST /admin/models/remove: deletes {"model": ...} from the cache.
Result<AdminTask> admin_remove_model(ServerState& state, const Call& call);
// GET /admin/models/cache: lists the cached models and the downloads.
Result<AdminTask> admin_list_cache(ServerState& state, const Call& call);
// POST /api/pull: succeeds at once for a served model; any other is downloaded and served, which takes an admin key.
Result<AdminTask> ollama_pull(ServerState& state, const Call& call);
// DELETE /api/delete: unloads the model and deletes its files from the cache.
Result<AdminTask> ollama_delete(ServerState& state, const Call& call);

// slots_handler.cpp: llama-server's format
// The running sequences of the first model, and max_num_seqs slots in all; the numbers are given per answer, because
// Quire binds no sequence to a slot.
Response slots_response(ServerState& state, const ReportReader& reader);
// POST /slots/{id}?action=save|restore|erase with {"filename": NAME}, a file of server.slots.directory.
Result<AdminTask> act_on_slot(ServerState& state, const Call& call);

// stream_handlers.cpp
// DELETE /v1/streams/{id}: ends a saved stream of the call's key; the rest of its answer is not computed.
Result<AdminTask> end_stream(ServerState& state, const Call& call);

}  // namespace quire
