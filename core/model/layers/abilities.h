// Operations that a model requires of its backend, beyond those of a plain decoder. Any thread.
#pragma once

#include "core/model/parts/model_spec.h"
#include "kernels/backend.h"

namespace quire {

// Throws StartupError, one line that names the first operation that the backend does not compute.
void require_abilities(const ModelSpec& spec, Backend& backend);
// Checks a cache of the layout's type and heads in the same way.
void require_cache(const KvLayout& layout, const Backend& backend);

}  // namespace quire
