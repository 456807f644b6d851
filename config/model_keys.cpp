#include "config/key_types.h"
#include "config/keys.h"
#include "core/text/tools/tool_format.h"
#include "server/models/model_reference.h"

namespace quire {

namespace types = config_types;

std::vector<ConfigKey> model_keys() {
  return {
      types::path(
          {"model.path", "A GGUF file, or a Hugging Face directory of safetensors", {"--model", "-m"}},
          [](Config & c) -> auto& { return c.serve.model.path; }),
      types::known_text(
          {"model.hf",
           "A repository on the Hugging Face hub instead of a path: OWNER/NAME[@REVISION][:QUANTISATION]. If it is "
           "not in the hub's cache (HF_HUB_CACHE), it is downloaded at the start",
           {"--hf", "--hf-repo"}},
          [](Config & c) -> auto& { return c.serve.model.hf; },
          "OWNER/NAME, such as Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0", {},
          [](std::string_view text) { return text.empty() || hub::parse_reference(text).has_value(); }),
      types::texts(
          {"model.alias",
           "Names of the model in requests; responses contain the first. Empty: the name of the file or repository",
           {"--alias", "--served-model-name", "-a"}},
          [](Config & c) -> auto& { return c.serve.model.alias; }),
      types::texts(
          {"model.adapters",
           "LoRA adapters, NAME=PATH each: a GGUF adapter or a PEFT directory. Requests select an adapter by NAME as "
           "their model; one step can batch requests with different adapters and with none",
           {"--adapters", "--lora-modules"}},
          [](Config & c) -> auto& { return c.serve.model.adapters; }),
      types::size({"model.adapter_memory",
                   "Maximum memory for a model's adapters; the memory plan includes it if the model has adapters or "
                   "model.adapter_updates is true. The least recently used adapter is evicted first and read again "
                   "from its file when a request needs it; adapters in use stay",
                   {"--adapter-memory"}},
                  [](Config & c) -> auto& { return c.serve.model.adapter_memory; },
                  {1, std::numeric_limits<std::int64_t>::max()}),
      types::boolean(
          {"model.adapter_updates",
           "Allow /v1/load_lora_adapter and /v1/unload_lora_adapter, with an admin key or on the admin listener, as "
           "vLLM's VLLM_ALLOW_RUNTIME_LORA_UPDATING does",
           {"--adapter-updates"}},
          [](Config & c) -> auto& { return c.serve.model.adapter_updates; }),
      types::path(
          {"model.mmproj",
           "The GGUF file of the tower that reads images for the model. Empty: a file mmproj*.gguf beside the model's",
           {"--mmproj"}},
          [](Config & c) -> auto& { return c.serve.model.mmproj; }),
      types::boolean(
          {"model.uses_mmproj",
           "Read images, if the model has a tower; false (--no-mmproj): the model reads text only"},
          [](Config & c) -> auto& { return c.serve.model.uses_mmproj; }),
      types::choice<PictureForm>({"model.image_preprocessing",
                                  "How images are resized and cut: trained: as the model was trained (Hugging Face's "
                                  "processor); llama.cpp: as "
                                  "llama.cpp does, for comparisons",
                                  {}},
                                 [](Config & c) -> auto& { return c.serve.model.picture_form; },
                                 {{"trained", PictureForm::kTrained}, {"llama.cpp", PictureForm::kLlamaCpp}}),
      types::path(
          {"model.chat_template",
           "A Jinja file to use instead of the model's own chat template",
           {"--chat-template", "--chat-template-file"}},
          [](Config & c) -> auto& { return c.serve.model.chat_template; }),
  };
}

// The rest of model.*: how its files are read, and how its weights are kept.
std::vector<ConfigKey> model_file_keys() {
  return {
      types::boolean(
          {"model.ignore_unknown_keys",
           "Serve a model or adapter although its files have settings that Quire does not know; the log names each. "
           "Such a setting may change what the model computes, therefore it is refused by default",
           {"--ignore-unknown-keys"}},
          [](Config & c) -> auto& { return c.serve.model.ignore_unknown_keys; }),
      types::path(
          {"model.packed_cache",
           "A folder that caches weights in the layout of this processor's kernels, so that the next start maps them "
           "instead of repacking. Empty: no cache",
           {"--packed-cache"}},
          [](Config & c) -> auto& { return c.serve.model.packed_cache; }),
      types::size({"model.packed_cache_bytes",
                   "Maximum size of all files in that folder; the least recently used are removed first. Weights that "
                   "are larger are not kept",
                   {}},
                  [](Config & c) -> auto& { return c.serve.model.packed_cache_bytes; },
                  {1, std::numeric_limits<std::int64_t>::max()}),
      types::known_text(
          {"model.tool_format",
           "The format in which the model writes tool calls; empty: detected from its chat template",
           {"--tool-format"}},
          [](Config & c) -> auto& { return c.serve.model.tool_format; },
          "empty, or the name of a format such as hermes or llama3_json", tool_format_names(),
          [](std::string_view name) { return name.empty() || find_tool_format(name) != nullptr; }),
  };
}

// A key without a section: a list of models, in place of `model`.
std::vector<ConfigKey> models_keys() {
  return {
      types::model_entries(
          {"models",
           "Several models instead of one. Each entry has 'name', and 'path' or 'hf'; it may override other sections "
           "with 'aliases', 'adapters', 'adapter_memory', 'adapter_updates', 'mmproj', 'uses_mmproj', "
           "'chat_template', 'tool_format', "
           "'draft_model', 'ignore_unknown_keys', 'packed_cache', 'packed_cache_bytes', 'max_model_len', "
           "'max_num_seqs', "
           "'kv_dtype', 'max_queued_requests' and 'max_queue_time'. 'kv_memory' is the size of the model's KV pool; "
           "models "
           "without it divide the rest of "
           "kv_cache.memory by 'kv_share' (1). 'sleep_after': after this time without work, the model's memory is "
           "released until a request wakes it. 'preload: false': the first request loads the model"},
          [](Config & c) -> auto& { return c.serve.models; }),
  };
}

std::vector<ConfigKey> pull_keys() {
  return {
      types::boolean(
          {"server.pull.enabled",
           "Allow /admin/models/pull and Ollama's /api/pull and /api/delete, which download and delete models, with "
           "an admin key or on the admin listener"},
          [](Config & c) -> auto& { return c.serve.server.pull.enabled; }),
      types::texts(
          {"server.pull.repositories",
           "Repositories that a request may download: OWNER/NAME, or OWNER/* for all of an owner. Empty: any"},
          [](Config & c) -> auto& { return c.serve.server.pull.repositories; }),
      types::size({"server.pull.max_bytes", "The largest model that a request may download; 0: no limit but the disk"},
                  [](Config & c) -> auto& { return c.serve.server.pull.max_bytes; },
                  {0, std::numeric_limits<std::int64_t>::max()}),
  };
}

}  // namespace quire
