// Ollama's endpoints about the models and the server: /api/tags, /api/ps, /api/show, /api/version; and refusals of
// /api/create, /api/copy and /api/push, since the operator chooses the models. Any thread.
#pragma once

#include <memory>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

// Lists all models that accept requests.
Result<std::unique_ptr<Operation>> ollama_tags(const ModelTable& models, const Call& call);
// Lists the loaded models.
Result<std::unique_ptr<Operation>> ollama_ps(const ModelTable& models, const Call& call);
// Describes the model in the body's `model` or `name`, without waking it.
Result<std::unique_ptr<Operation>> ollama_show(const ModelTable& models, const Call& call);
Result<std::unique_ptr<Operation>> ollama_version(const ModelTable& models, const Call& call);
Result<std::unique_ptr<Operation>> refuse_ollama_change(const ModelTable& models, const Call& call);

}  // namespace quire
