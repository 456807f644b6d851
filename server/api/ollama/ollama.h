// Ollama's API: chats, texts, embeddings, and the endpoints about the models and the server. /api/create, /api/copy and
// /api/push are refused, since the operator chooses the models. Any thread; meant for text threads.
#pragma once

#include <memory>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

Result<std::unique_ptr<Operation>> parse_ollama_chat(ModelCall& asked, const Call& call);
Result<std::unique_ptr<Operation>> parse_ollama_generate(ModelCall& asked, const Call& call);

Result<std::unique_ptr<Operation>> parse_ollama_embed(ModelCall& asked, const Call& call);
Result<std::unique_ptr<Operation>> parse_ollama_embeddings(ModelCall& asked, const Call& call);

// Lists all models that accept requests.
Result<std::unique_ptr<Operation>> ollama_tags(const ModelTable& models, const Call& call);
// Lists the loaded models.
Result<std::unique_ptr<Operation>> ollama_ps(const ModelTable& models, const Call& call);
// Describes the model in the body's `model` or `name`, without waking it.
Result<std::unique_ptr<Operation>> ollama_show(const ModelTable& models, const Call& call);
Result<std::unique_ptr<Operation>> ollama_version(const ModelTable& models, const Call& call);
Result<std::unique_ptr<Operation>> refuse_ollama_change(const ModelTable& models, const Call& call);

}  // namespace quire
