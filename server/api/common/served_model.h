// ServedModel: the data of a served model that the API needs. ModelFacts: its file's figures; TakenAdapter: an adapter
// for one request. Immutable after construction; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/pooling.h"
#include "core/base/result.h"
#include "core/base/sampling_ranges.h"
#include "core/engine/request_queue.h"
#include "core/model/formats/hf/text_tasks.h"
#include "core/text/chat_template_capabilities.h"
#include "core/text/tokenizer.h"
#include "core/text/tools/tool_format.h"

namespace quire {

struct MediaSight;
class Adapter;
class ChatTemplate;
class GrammarCompiler;

struct ModelFacts {
  std::string architecture;  // GGUF's name
  std::string name;          // for people
  std::string file_type;     // the type of most weights: "Q4_K"
  std::int64_t num_parameters = 0;
  std::uint64_t file_bytes = 0;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  Pooling pooling = Pooling::kLast;  // for embeddings
  bool is_causal = true;             // false: a sequence is computed whole, in one step
  bool has_head = true;              // false: embeddings only
  bool has_next_tokens = false;      // the block that predicts the token after next is present and wanted
};

// Waits for an adapter that is not in memory: calls back once it can be taken, or cannot be, perhaps before it returns.
// To be called once. The adapter then stays in memory until the function is destroyed.
using AdapterWaiter = std::function<void(std::function<void(std::optional<Error>)>)>;

// An adapter that its holder keeps in memory, or else the wait for it.
struct TakenAdapter {
  std::shared_ptr<const Adapter> adapter;
  AdapterWaiter wait;
};

struct ServedModel {
  std::string name;                  // the first name, used in responses and /v1/models
  std::vector<std::string> aliases;  // further names it answers to
  std::int64_t created = 0;          // Unix seconds
  ModelFacts info;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;
  TemplateCapabilities template_capabilities;               // probed from chat_template
  ToolFormat tool_format;                                   // how its tool calls and reasoning are written
  std::shared_ptr<const GrammarCompiler> grammar_compiler;  // null: texts cannot be constrained
  GenerationDefaults defaults;
  std::shared_ptr<const MediaSight> sight;  // null: the model reads text only
  TextTasks tasks;                          // embedding, judging and classifying texts
  // Takes the adapter of this name; nullopt: unknown name. Empty function: the model takes no adapters.
  std::function<std::optional<TakenAdapter>(const std::string& name)> take_adapter;
  bool has_draft_model = false;            // a draft model may draft for it
  std::shared_ptr<const Adapter> adapter;  // adapter of every request to the model under this name
  std::string fingerprint;                 // equal for equal files, arithmetic and version
  std::int64_t max_model_len = 0;          // prompt and new tokens of one choice together
  std::int32_t max_num_choices = 1;
  std::shared_ptr<RequestQueue> queue;  // holding it keeps the model's engine alive
};

}  // namespace quire
