// Reads a transformer's shape from GGUF metadata. Any thread. Source: the GGUF specification's keys, and ggml's models
// for what an absent key means.
#pragma once

#include <string>

#include "core/model/gguf.h"
#include "core/model/model_config.h"

namespace quire {

// Throws StartupError, one line that begins with `where`: a key is missing or wrong, or asks for what is not supported.
// vocab_size, tied_head and the rope's frequency divisors come from the tensors and are left to the caller.
ModelConfig read_gguf_config(const GgufFile& file, const std::string& where);

}  // namespace quire
