// ServedModel: the data of a served model that the API needs. Immutable after construction; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/adapter_pool.h"
#include "core/engine/request_queue.h"
#include "core/grammar/compiler.h"
#include "core/model/formats/hf/text_tasks.h"
#include "core/model/layers/loaded_model.h"
#include "core/text/chat_template.h"
#include "core/text/chat_template_capabilities.h"
#include "core/text/tokenizer.h"
#include "core/text/tools/tool_format.h"
#include "server/media/media_sight.h"

namespace quire {

struct ServedModel {
  std::string name;                  // the first name, used in responses and /v1/models
  std::vector<std::string> aliases;  // further names it answers to
  std::int64_t created = 0;          // Unix seconds
  ModelInfo info;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;
  TemplateCapabilities template_capabilities;               // probed from chat_template
  ToolFormat tool_format;                                   // how its tool calls and reasoning are written
  std::shared_ptr<const GrammarCompiler> grammar_compiler;  // null: texts cannot be constrained
  GenerationDefaults defaults;
  std::shared_ptr<const MediaSight> sight;  // null: the model reads text only
  TextTasks tasks;                          // embedding, judging and classifying texts
  std::shared_ptr<AdapterPool> adapters;    // null: the model takes no adapters
  bool has_draft_model = false;             // a draft model may draft for it
  std::shared_ptr<const Adapter> adapter;   // adapter of every request to the model under this name
  std::string fingerprint;                  // equal for equal files, arithmetic and version
  std::int64_t max_model_len = 0;           // prompt and new tokens of one choice together
  std::int32_t max_num_choices = 1;
  std::shared_ptr<RequestQueue> queue;  // holding it keeps the model's engine alive
};

}  // namespace quire
