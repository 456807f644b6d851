// What Ollama's API says of the models and of the server: /api/tags, /api/ps, /api/show, /api/version; and /api/pull,
// /api/create, ... which change what is served and are the operator's. Any thread.
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
// A model that is there is there; nothing is fetched.
Result<std::unique_ptr<Operation>> ollama_pull(const ModelTable& models, const Call& call);
Result<std::unique_ptr<Operation>> refuse_ollama_change(const ModelTable& models, const Call& call);

}  // namespace quire
