// HostedModelSpec: one model as an operator wants it served: its files, its names, its engine, its share of the memory
// and its sleep. ModelEntry: its form in the configuration's `models` list, where an absent field has the general
// sections' value. Value types; any thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/model/encode/towers/families.h"
#include "core/model/layers/loaded_model.h"

namespace quire {

// Models that one process may know, loaded or not: each is a label in the metrics.
inline constexpr std::size_t kMostModels = 64;

// Names of the types that a KV cache may have.
inline constexpr std::pair<std::string_view, KvDType> kKvDTypes[] = {{"f16", KvDType::kF16},
                                                                     {"bf16", KvDType::kBF16},
                                                                     {"f32", KvDType::kF32},
                                                                     {"i8", KvDType::kI8},
                                                                     {"i4", KvDType::kI4}};
std::optional<KvDType> kv_dtype_of(std::string_view name);

// Adapters that one model may have, in memory or not.
inline constexpr std::size_t kMostAdapters = 1024;
inline constexpr std::int64_t kDefaultAdapterMemory = std::int64_t{512} << 20;

struct ModelOptions {
  std::filesystem::path path;         // a GGUF file or a Hugging Face directory
  std::string hf;                     // a hub's repository that `path` is downloaded from; empty: `path` is given
  std::vector<std::string> alias;     // names it answers to; the first is its own. None: the file's name
  std::vector<std::string> adapters;  // NAME=PATH: the model under another name, changed by a LoRA adapter
  std::int64_t adapter_memory = kDefaultAdapterMemory;  // bytes that its adapters take at most, others in their files
  bool adapter_updates = false;                         // an admin may load and unload adapters while it is served
  std::filesystem::path chat_template;  // a Jinja file instead of the model's own template; empty: the model's
  std::string tool_format;              // how tool calls are written ("hermes", ...); empty: as the chat template says
  std::filesystem::path mmproj;         // the tower that reads pictures for it; empty: one beside the model's file
  bool uses_mmproj = true;              // false: text only, even with a tower
  PictureForm picture_form = PictureForm::kTrained;
  std::filesystem::path draft_model;   // a smaller model that drafts for it; empty: none does
  std::filesystem::path packed_cache;  // folder of weights packed by an earlier start; empty: none is kept
  std::int64_t packed_cache_bytes = kDefaultPackedBytes;  // limit for all files in that folder
  bool ignore_unknown_keys = false;  // settings of its files that Quire does not know: a warning in place of a refusal
};

struct ModelEntry {
  std::string name;
  ModelOptions model;  // alias: further names
  std::optional<std::int64_t> max_model_len;
  std::optional<std::int64_t> max_num_seqs;
  std::optional<KvDType> kv_dtype;
  std::int64_t kv_memory = 0;  // bytes of the KV pool; 0: by kv_share
  double kv_share = 1.0;       // share of the pool memory, relative to other models
  std::optional<std::int64_t> max_queued_requests;
  std::optional<std::chrono::milliseconds> max_queue_time;
  std::chrono::milliseconds sleep_after{0};  // without work; 0: never
  bool preload = true;                       // false: the first request loads it
};

// NAME=PATH: an adapter and the name that clients use.
struct AdapterPath {
  std::string name{};
  std::filesystem::path path{};
  bool is_configured = true;  // false: it was loaded by an admin's call
};

struct HostedModelSpec {
  std::string name;
  std::vector<std::string> aliases;   // further names it answers to
  std::vector<AdapterPath> adapters;  // current ones; model.adapters are the configured ones
  ModelOptions model;
  EngineOptions engine;        // kv_cache.memory: set by the plan; 0: no plan was made
  std::int64_t kv_memory = 0;  // bytes, as asked for; 0: by share
  double kv_share = 1.0;
  std::chrono::milliseconds sleep_after{0};
  bool preload = true;
  bool is_only = false;                        // from section `model`; a reload may rename it
  bool is_configured = true;                   // false: added by an admin's call, removed when unloaded
  bool is_canary = false;                      // its adapters go by the other version's names
  std::optional<std::string> template_text{};  // text of model.chat_template once read

  bool takes_adapters() const { return !adapters.empty() || model.adapter_updates; }
};

// Returns nothing unless the text is NAME=PATH.
std::optional<AdapterPath> adapter_path_of(std::string_view text);

// Checks that a name needs no quoting by clients, in log lines, paths and metric labels: at most 128 letters, digits
// and - _ . : / @ +.
bool is_model_name(std::string_view name);
// Returns whether the name is its own, an alias or an adapter's.
bool answers_to(const HostedModelSpec& spec, std::string_view name);
// The first repeated name; nothing if there is none.
std::optional<std::string> repeated_name(const HostedModelSpec& spec);
// Returns whether both answer to one name.
bool share_a_name(const HostedModelSpec& a, const HostedModelSpec& b);
// Builds the spec for `entry` on top of the general sections' `engine`.
HostedModelSpec spec_of(const ModelEntry& entry, const EngineOptions& engine);
// Builds the spec for the section `model`.
HostedModelSpec spec_of_only(const ModelOptions& model, const EngineOptions& engine);
// Reads the text of model.chat_template if it is set. Throws StartupError.
void read_template(HostedModelSpec& spec);

}  // namespace quire
