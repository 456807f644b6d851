// Ollama's embeddings: POST /api/embed, of length 1, and its older /api/embeddings, as the model computed them. Any
// thread; meant for text threads.
#pragma once

#include <memory>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

Result<std::unique_ptr<Operation>> parse_ollama_embed(ModelCall& asked, const Call& call);
Result<std::unique_ptr<Operation>> parse_ollama_embeddings(ModelCall& asked, const Call& call);

}  // namespace quire
