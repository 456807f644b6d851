// The endpoints that answer at once, without the engine: models, tokenizing, rendering a template. Any thread.
#pragma once

#include <memory>

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

Result<std::unique_ptr<Operation>> list_models(const ModelTable& models, const Call& call);
Result<std::unique_ptr<Operation>> get_model(const ModelTable& models, const Call& call);  // the path's last segments
// llama-server's: the adapters of the first model, and the scales of all requests, which are not changed.
Result<std::unique_ptr<Operation>> list_adapters(const ModelTable& models, const Call& call);
Result<std::unique_ptr<Operation>> refuse_scales(const ModelTable& models, const Call& call);
Result<std::unique_ptr<Operation>> tokenize(ModelCall& asked, const Call& call);
Result<std::unique_ptr<Operation>> detokenize(ModelCall& asked, const Call& call);
Result<std::unique_ptr<Operation>> apply_template(ModelCall& asked, const Call& call);

}  // namespace quire
