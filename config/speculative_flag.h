// --speculative-config: vLLM's object for drafting, converted to the keys of `speculation`. One thread at a
// time.
#pragma once

#include <string>
#include <string_view>

#include "config/config.h"

namespace quire {

inline constexpr std::string_view kSpeculativeFlag = "--speculative-config";

// Throws StartupError, one line that begins with the flag: no JSON object, or an unknown key or method.
void set_speculative_config(Config& config, const std::string& json);

}  // namespace quire
