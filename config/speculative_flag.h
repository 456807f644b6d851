// --speculative-config: vLLM's object for drafting, read into the keys of `speculation` that it stands for. One thread
// at a time.
#pragma once

#include <string>
#include <string_view>

#include "config/config.h"

namespace quire {

inline constexpr std::string_view kSpeculativeFlag = "--speculative-config";

// Throws StartupError, one line that begins with the flag: no JSON object, a key or a method that Quire does not have.
void set_speculative_config(Config& config, const std::string& json);

}  // namespace quire
