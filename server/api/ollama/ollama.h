// Ollama's API: POST /api/chat and /api/generate. Any thread; meant for text threads.
#pragma once

#include <memory>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

Result<std::unique_ptr<Operation>> parse_ollama_chat(ModelCall& asked, const Call& call);
Result<std::unique_ptr<Operation>> parse_ollama_generate(ModelCall& asked, const Call& call);

}  // namespace quire
