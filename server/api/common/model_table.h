// ModelTable: the models by name, as they are at one moment. Immutable after construction; any thread. Invariant: no
// name, alias or adapter's name belongs to two models.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/result.h"
#include "server/api/common/field_reader.h"
#include "server/api/common/json.h"
#include "server/api/common/served_model.h"

namespace quire {

class RunningModel;

enum class ModelState {
  kUnloaded,  // taken out of service: requests get a 404
  kLoading,   // loads for the first time, or another file
  kReady,
  kSleeping,  // has no memory; a request wakes it
  kWaking,
  kDraining,  // its last requests end; then it sleeps, is unloaded or replaced
  kFailed,    // could not be loaded; a request tries again after a while
};

const char* model_state_name(ModelState state);

// A parsed call to a model.
struct ModelCall {
  std::unique_ptr<const Json> body;  // an object that never moves, because the reader points into it
  FieldReader reader;
  std::shared_ptr<const ServedModel> model;
};

// A request waits until this is loaded: the sleeping model itself, or its adapter.
struct SleepingModel {
  std::string name;
  AdapterWaiter wait_for_adapter = nullptr;  // null: the model
};

struct NamedAdapter {
  std::string name;
  std::string file;  // file name without the folder
};

struct TableEntry {
  std::string name;
  std::vector<std::string> aliases;
  std::vector<NamedAdapter> adapters;  // each has its own name, which selects it in requests
  std::int64_t created = 0;            // Unix seconds
  ModelState state = ModelState::kReady;
  std::string failure;                        // reason why loading failed
  std::optional<ModelFacts> info;             // absent: it was never loaded
  std::int64_t max_model_len = 0;             // 0: it was never loaded
  std::shared_ptr<const ServedModel> served;  // null: not ready
  std::shared_ptr<RunningModel> running;      // null: not ready, or not watched
  double canary_share = 0.0;                  // share of its conversations that canary_name() gets
};

// The refusal of a request for a model of that name.
Error not_served(std::string_view name);

// The adapter with this name, with or without ":latest"; null: it is the model's own name.
const NamedAdapter* find_adapter(const TableEntry& model, std::string_view name);

class ModelTable {
 public:
  explicit ModelTable(std::vector<TableEntry> entries) : entries_(std::move(entries)) {}

  const std::vector<TableEntry>& entries() const { return entries_; }
  // Finds a model by name, alias or adapter; the first if the name is empty. An unknown name is looked up again without
  // the tag ":latest", which Ollama's clients add. Errors: 404 "model_not_found", also for unloaded models.
  Result<const TableEntry*> entry(std::string_view name) const;
  // A copy of the table whose models have contexts of at most this many tokens.
  ModelTable limited_to(std::int64_t max_context) const;
  // Parses a body and finds the model it names, or that model's canary, with the adapter that `model` or `lora` names.
  // Errors: the body is not a JSON object; `model` is not a string or is not served; `lora` is not an adapter of the
  // model.
  Result<std::variant<ModelCall, SleepingModel>> open(std::string_view body, std::string_view key_name,
                                                      const WorkLimit& limit = {}) const;

 private:
  // The version of the model that serves this conversation.
  const std::shared_ptr<const ServedModel>& version_for(const TableEntry& model, const Json& body,
                                                        std::string_view key_name) const;

  std::vector<TableEntry> entries_;
};

// Finds the model that a body names, without parsing all of it. Null if the answer needs a parse of the whole body.
const TableEntry* peek_model(const ModelTable& models, std::string_view body);

// The name under which requests can ask for a model's canary, a second version that gets a share of its conversations.
std::string canary_name(std::string_view model);

// A conversation's position in the traffic, a number in [0, 1): the same for all its requests with one key, so that it
// stays with one version, whose prefix cache has it. A conversation is identified by its
// client's name for it (prompt_cache_key, session_id, user, safety_identifier, metadata.user_id), else by the beginning
// of its first text.
double place_in_traffic(const Json& body, std::string_view key_name);

}  // namespace quire
