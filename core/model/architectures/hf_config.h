// Reads a transformer's shape from a Hugging Face config.json. Any thread.
// Source: the configuration classes of transformers (llama, qwen2, qwen3), both `rope_scaling` and the newer
// `rope_parameters`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/base/pooling.h"
#include "core/model/architectures/model_config.h"
#include "core/model/formats/json_file.h"

namespace quire {

// Throws StartupError, one line that begins with `where`: a key is missing or wrong, or asks for what is not supported.
ModelConfig read_hf_config(const nlohmann::json& config, const std::string& where);

// Throws StartupError where a rotation has a parameter that Quire does not know.
void refuse_unknown_rope_keys(const nlohmann::json& scaling, const JsonObject& object);

GenerationDefaults read_hf_generation(const nlohmann::json& generation, const std::string& where);

// What a sentence-transformers' 1_Pooling/config.json chooses, by its flags or by its name.
Pooling read_hf_pooling(const nlohmann::json& pooling, const std::string& where);

// The template in a tokenizer_config.json: a string, or a list of named ones of which "default" counts. Empty where
// none.
std::string read_hf_chat_template(const nlohmann::json& tokenizer_config, const std::string& where);

}  // namespace quire
