// The groups of a model's layers by the state that they keep of a sequence between steps. Immutable; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/architectures/model_spec.h"

namespace quire {

// By layer: tokens of which K and V are kept for all that read them, the newest among them; 0: all tokens, or none.
std::vector<std::int64_t> kept_windows(const ModelSpec& spec);
// Without a window where no layer has one that is shorter than the context.
KvSplit kv_split_of(const ModelSpec& spec);
// In the order of each group's first layer.
std::vector<KvGroupSpec> kv_groups_of(const ModelSpec& spec);

}  // namespace quire
