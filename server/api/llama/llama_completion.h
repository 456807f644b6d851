// llama-server's own completion endpoints and its /props, for applications that were written for it.
// On a text thread. Source: llama.cpp, tools/server/README.md.
#pragma once

#include <memory>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

// POST /completion.
Result<std::unique_ptr<Operation>> parse_llama_completion(ModelCall& asked, const Call& call);
// POST /infill: generates the text between two texts, if the model has tokens for that.
Result<std::unique_ptr<Operation>> parse_infill(ModelCall& asked, const Call& call);
// GET /props: of the model that the query names, or of the first.
Result<std::unique_ptr<Operation>> llama_props(const ModelTable& models, const Call& call);

}  // namespace quire
