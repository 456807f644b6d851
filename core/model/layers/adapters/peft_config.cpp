#include "core/model/layers/adapters/peft_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/log.h"
#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/architectures/spec_reader.h"
#include "core/model/formats/hf/json_file.h"

namespace quire {

namespace {

using nlohmann::json;

// Settings of training or of other runtimes, and settings whose effect the tensors show.
constexpr std::string_view kHarmless[] = {"arrow_config",
                                          "auto_mapping",
                                          "base_model_name_or_path",
                                          "base_model_class",
                                          "corda_config",
                                          "ensure_weight_tying",
                                          "eva_config",
                                          "exclude_modules",
                                          "inference_mode",
                                          "init_lora_weights",
                                          "layers_pattern",
                                          "layers_to_transform",
                                          "loftq_config",
                                          "lora_dropout",
                                          "lora_ga_config",
                                          "megatron_config",
                                          "megatron_core",
                                          "parent_library",
                                          "peft_type",
                                          "peft_version",
                                          "qalora_group_size",
                                          "r",
                                          "revision",
                                          "runtime_config",
                                          "target_modules",
                                          "target_parameters",
                                          "task_type"};

struct Refused {
  const char* key;
  const char* way_out;
};
constexpr const char* kMerge = "merge the adapter into the model (PEFT's merge_and_unload) and serve that";
constexpr Refused kRefused[] = {
    {"use_dora", kMerge},
    {"bias", kMerge},
    {"fan_in_fan_out", kMerge},
    {"lora_bias", kMerge},
    {"modules_to_save", kMerge},
    {"trainable_token_indices", kMerge},
    {"layer_replication", kMerge},
    {"use_qalora", kMerge},
    {"use_bdlora", kMerge},
    {"arrow_config", "serve the adapters one by one"},
    {"alora_invocation_tokens", "adapters that some tokens switch on are not computed"},
};

// Null, false, zero, "none" and empty values switch a feature off.
bool is_set(const json* value) {
  return value != nullptr && !value->empty() && *value != false && *value != 0 && *value != "none" && *value != "";
}

// Initialisers that leave the base model's weights unchanged. Others subtract their share from them, and PEFT does so
// again when it loads the adapter.
bool keeps_base(const json& initialiser) {
  constexpr std::string_view kPlain[] = {"gaussian", "eva", "orthogonal"};
  if (initialiser.is_boolean()) return true;
  return initialiser.is_string() &&
         std::ranges::find(kPlain, initialiser.get_ref<const std::string&>()) != std::end(kPlain);
}

void refuse_other_changes(const JsonObject& config) {
  if (config.text("peft_type").value_or("LORA") != "LORA") config.fail("'peft_type' is not LORA");
  for (const Refused& row : kRefused) {
    if (is_set(config.find(row.key))) config.fail(fmt::format("'{}' is not supported: {}", row.key, row.way_out));
  }
  const json* initialiser = config.find("init_lora_weights");
  if (initialiser != nullptr && !keeps_base(*initialiser)) {
    config.fail(
        fmt::format("'init_lora_weights' is {}, which changes the base model's weights too: convert it to a plain LoRA "
                    "adapter (PEFT's save_pretrained with path_initial_model_for_weight_conversion)",
                    printable(initialiser->dump(-1, ' ', true, json::error_handler_t::replace))));
  }
}

void refuse_unknown(const json& raw, const JsonObject& config, bool ignore_unknown_keys) {
  for (const std::string& key : config.unread()) {
    if (!is_set(&raw.at(key)) || std::ranges::find(kHarmless, key) != std::end(kHarmless)) continue;
    if (!ignore_unknown_keys)
      config.fail(fmt::format("the key '{}' is not supported: it may change what the adapter computes; {}",
                              printable(key), kWayOutOfUnknownKeys));
    log::warn("{}: the key '{}' is not known and is ignored", config.where(), printable(key));
  }
}

}  // namespace

PeftConfig::PeftConfig(const std::filesystem::path& directory, bool ignore_unknown_keys)
    : where_((directory / "adapter_config.json").string()) {
  const auto raw = read_json_file(where_);
  if (!raw) throw StartupError(fmt::format("{}: adapter_config.json is missing", directory.string()));
  const JsonObject config(*raw, where_);
  refuse_other_changes(config);
  rank_ = static_cast<double>(config.integer("r").value_or(0));
  alpha_ = config.number("lora_alpha").value_or(alpha_);
  by_root_ = config.boolean("use_rslora").value_or(false);
  ranks_ = read_patterns(config, "rank_pattern");
  alphas_ = read_patterns(config, "alpha_pattern");
  refuse_unknown(*raw, config, ignore_unknown_keys);
}

PeftConfig::Patterns PeftConfig::read_patterns(const JsonObject& config, const char* key) {
  Patterns out;
  const json* listed = config.find(key);
  if (listed == nullptr) return out;
  if (!listed->is_object()) config.fail(fmt::format("'{}' is not an object", key));
  for (const auto& [pattern, value] : listed->items()) {
    if (!value.is_number()) config.fail(fmt::format("'{}' has '{}' for no number", key, printable(pattern)));
    try {
      out.emplace_back(Regex::compile(fmt::format("^(?:.*\\.)?(?:{})$", pattern)), value.get<double>());
    } catch (const StartupError&) {
      config.fail(fmt::format("'{}' has '{}', which is no pattern", key, printable(pattern)));
    }
  }
  return out;
}

double PeftConfig::value_for(const Patterns& patterns, const std::string& module, double otherwise) {
  Regex::Matcher matcher;
  for (const auto& [pattern, value] : patterns) {
    if (matcher.find(pattern, module, 0)) return value;
  }
  return otherwise;
}

double PeftConfig::scale(const std::string& module, std::int64_t rank) const {
  const double stated = value_for(ranks_, module, rank_);
  if (stated != 0.0 && stated != static_cast<double>(rank)) {
    throw StartupError(
        fmt::format("{}: the rank is {} ('r' or 'rank_pattern'), and the matrices of '{}' have {}: take "
                    "the file that belongs to them",
                    where_, stated, printable(module, 200), rank));
  }
  const double alpha = value_for(alphas_, module, alpha_);
  return alpha / (by_root_ ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
}

}  // namespace quire
