// PackedModel: a model's weights packed for one backend, by role. Move-only; immutable after packing; engine thread.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "core/model/layers/packed_cache.h"
#include "core/model/layers/weight_sources.h"
#include "kernels/backend.h"

namespace quire {

// Null if the model has none.
struct PackedGroup {
  template <class T>
  using ByRole = std::array<T, kNumWeightRoles>;

  ByRole<std::unique_ptr<Buffer>> vectors;
  ByRole<std::unique_ptr<Buffer>> biases;
  ByRole<std::unique_ptr<Linear>> products;
  ByRole<std::vector<std::unique_ptr<Linear>>> experts;
  ByRole<std::unique_ptr<Embedding>> rows;

  const float* vector(WeightRole role) const { return data(vectors, role); }
  const float* bias(WeightRole role) const { return data(biases, role); }
  const Linear& product(WeightRole role) const { return *products[static_cast<std::size_t>(role)]; }

 private:
  static const float* data(const ByRole<std::unique_ptr<Buffer>>& all, WeightRole role) {
    const auto& buffer = all[static_cast<std::size_t>(role)];
    return buffer == nullptr ? nullptr : buffer->data();
  }
};
using PackedLayer = PackedGroup;

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
