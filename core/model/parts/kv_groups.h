// The groups of a model's layers by the state that they keep of a sequence between steps. Immutable; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/parts/model_spec.h"

namespace quire {

// By layer: number of latest tokens whose K and V are kept for all layers that read them; 0: all tokens, or none.
std::vector<std::int64_t> kept_windows(const ModelSpec& spec);
// No window if every layer's window covers the context, or if there are recurrent layers, whose states cover all
// tokens.
KvSplit kv_split_of(const ModelSpec& spec);
// In the order of each group's first layer.
std::vector<KvGroupSpec> kv_groups_of(const ModelSpec& spec);

}  // namespace quire
