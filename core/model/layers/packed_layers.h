// PackedModel: a model's weights packed for one backend, by role. Move-only; immutable after packing; engine thread.
#pragma once

#include <functional>
#include <vector>

#include "core/model/layers/packed_cache.h"
#include "core/model/layers/weight_sources.h"
#include "core/model/parts/packed_group.h"
#include "kernels/backend.h"

namespace quire {

struct PackedModel {
  std::vector<PackedLayer> layers;
  PackedGroup model;
};

// Packs every weight. `packed` receives the source of each matrix once it is packed and its file pages are no longer
// needed. `cached` (may be null): packed weights from the cache, used instead of packing. `writer` (may be null) stores
// the packed weights.
PackedModel pack_weights(const WeightSources& sources, Backend& backend,
                         const std::function<void(const WeightSource&)>& packed, const PackedWeights* cached,
                         PackedWriter* writer);

}  // namespace quire
