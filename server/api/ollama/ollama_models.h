// Ollama's endpoints about the models and the server: /api/tags, /api/ps, /api/show, /api/version; and what
// /api/create, /api/copy and /api/push answer: which models are served is the operator's choice. Any thread.
#pragma once

#include <memory>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

// All models that can be asked.
Result<std::unique_ptr<Operation>> ollama_tags(const ModelTable& models, const Call& call);
// Those of them that are loaded.
Result<std::unique_ptr<Operation>> ollama_ps(const ModelTable& models, const Call& call);
// One of them, by the body's `model` or `name`; it is not woken.
Result<std::unique_ptr<Operation>> ollama_show(const ModelTable& models, const Call& call);
Result<std::unique_ptr<Operation>> ollama_version(const ModelTable& models, const Call& call);
Result<std::unique_ptr<Operation>> refuse_ollama_change(const ModelTable& models, const Call& call);

}  // namespace quire
