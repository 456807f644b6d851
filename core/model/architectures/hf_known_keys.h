// Keys of Hugging Face's configurations that do not change results, and the rule for all others. Pure functions; any
// thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/formats/hf/json_file.h"

namespace quire {

// Keys of `config` that were never looked up and are to be warned of: notes of other tools and, if `ignores_unknown`,
// those that may change results, which throw StartupError otherwise: one line that names the key, the known key with
// the most similar spelling, and a way out. `harmless`: keys without effect, beside those of all models.
std::vector<std::string> ignored_hf_keys(const nlohmann::json& raw, const JsonObject& config, bool ignores_unknown,
                                         std::span<const std::string_view> harmless = {});

}  // namespace quire
