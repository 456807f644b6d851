// What a model needs of its backend beyond the plain decoder's operations. Any thread.
#pragma once

#include "core/model/architectures/model_spec.h"
#include "kernels/backend.h"

namespace quire {

// Throws StartupError, one line that names the first thing that the backend does not compute.
void require_abilities(const ModelSpec& spec, Backend& backend);
// The same for a cache of the layout's type and heads.
void require_cache(const KvLayout& layout, const Backend& backend);

}  // namespace quire
