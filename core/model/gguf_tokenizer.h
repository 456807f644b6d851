// Reads a GGUF file's tokenizer.* metadata into the plain data that core/text builds a tokenizer from. Any thread.
#pragma once

#include <memory>

#include "core/model/gguf.h"
#include "core/text/tokenizer.h"

namespace quire {

// Throws StartupError naming the key that is missing, of the wrong kind or contradictory.
std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufFile& file);

}  // namespace quire
