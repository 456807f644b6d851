// The JSON files of a Hugging Face directory: the model's spec, its sampling defaults, pooling and chat template, and
// the keys that do not change results. Pure functions; any thread. Source: the configuration classes of transformers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/pooling.h"
#include "core/model/architectures/spec_reader.h"
#include "core/model/formats/hf/json_file.h"

namespace quire {

// Reads a config.json, and names `tensors` by GGUF's names. Throws StartupError, one line that begins with `where`: a
// key is missing, wrong or unknown, or asks for a feature that is not supported.
ModelSpec read_hf_spec(const nlohmann::json& config, const std::string& where, TensorTable& tensors,
                       const SpecWishes& wishes = {});

// Throws StartupError if a rotation has a parameter that Quire does not know.
void refuse_unknown_rope_keys(const nlohmann::json& scaling, const JsonObject& object);

// The sampling defaults. `tensors` takes warnings of settings that are not applied.
GenerationDefaults read_hf_generation(const nlohmann::json& generation, const std::string& where, TensorTable& tensors);

// The pooling chosen by a sentence-transformers' 1_Pooling/config.json, by its flags or by name.
Pooling read_hf_pooling(const nlohmann::json& pooling, const std::string& where);

// The template in a tokenizer_config.json: a string, or a list of named ones, of which "default" is used. Empty if it
// has none.
std::string read_hf_chat_template(const nlohmann::json& tokenizer_config, const std::string& where);

// Keys of `config` that were never looked up and are to be warned of: notes of other tools and, if `ignores_unknown`,
// those that may change results, which throw StartupError otherwise: one line that names the key, the known key with
// the most similar spelling, and a way out. `harmless`: keys without effect, beside those of all models.
std::vector<std::string> ignored_hf_keys(const nlohmann::json& raw, const JsonObject& config, bool ignores_unknown,
                                         std::span<const std::string_view> harmless = {});

}  // namespace quire
