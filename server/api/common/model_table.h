// ModelTable: the models that there are, by name, as they stand at one moment. Immutable after construction; any
// thread. Invariant: no name, alias or adapter's name belongs to two.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/result.h"
#include "server/api/common/field_reader.h"
#include "server/api/common/served_model.h"

namespace quire {

class RunningModel;

enum class ModelState {
  kUnloaded,  // taken out of service: as if it were not there
  kLoading,   // for the first time, or as another file
  kReady,
  kSleeping,  // without memory; a request wakes it
  kWaking,
  kDraining,  // its last requests end, then it sleeps, is unloaded or replaced
  kFailed,    // could not be loaded; a request tries again after a while
};

const char* model_state_name(ModelState state);

// What an endpoint that asks a model begins with.
struct ModelCall {
  std::unique_ptr<const Json> body;  // an object; stays where it is, for the reader points into it
  FieldReader reader;
  std::shared_ptr<const ServedModel> model;
};

// What must be loaded before the model can be asked: the model itself, which is to be woken, or its adapter.
struct SleepingModel {
  std::string name;
  std::shared_ptr<AdapterWait> adapter = nullptr;  // null: the model
};

struct NamedAdapter {
  std::string name;
  std::string file;  // its name, without the folder
};

struct TableEntry {
  std::string name;
  std::vector<std::string> aliases;
  std::vector<NamedAdapter> adapters;  // each a name of its own, by which the model is asked with it
  std::int64_t created = 0;            // Unix seconds
  ModelState state = ModelState::kReady;
  std::string failure;                        // why it could not be loaded
  std::optional<ModelInfo> info;              // absent: it was never loaded
  std::int64_t max_model_len = 0;             // 0: it was never loaded
  std::shared_ptr<const ServedModel> served;  // null: not ready
  std::shared_ptr<RunningModel> running;      // null: not ready, or not watched
  double canary_share = 0.0;                  // of its conversations, that the model canary_name() gets
};

// The adapter of the model that the name stands for, with or without ":latest"; null: it is the model's own.
const NamedAdapter* find_adapter(const TableEntry& model, std::string_view name);

class ModelTable {
 public:
  explicit ModelTable(std::vector<TableEntry> entries) : entries_(std::move(entries)) {}

  const std::vector<TableEntry>& entries() const { return entries_; }
  // By name, alias or adapter; the first where the name is empty. What is not there is looked for without the tag
  // ":latest", which Ollama's clients add. Errors: 404 "model_not_found", also for the unloaded.
  Result<const TableEntry*> entry(std::string_view name) const;
  // The same models with contexts of at most this many tokens.
  ModelTable limited_to(std::int64_t max_context) const;
  // Parses a body and finds the model it names, or that one's canary, with the adapter that `model` or `lora` names.
  // Errors: the body is no JSON object, its `model` no text or not served, its `lora` no adapter of the model.
  Result<std::variant<ModelCall, SleepingModel>> open(std::string_view body, std::string_view key_name,
                                                      const WorkLimit& limit = {}) const;

 private:
  // The version of the model that serves this conversation.
  const std::shared_ptr<const ServedModel>& version_for(const TableEntry& model, const Json& body,
                                                        std::string_view key_name) const;

  std::vector<TableEntry> entries_;
};

}  // namespace quire
