// PackedGroup: the packed weights of a layer, or of the model outside its layers, by role. Move-only; immutable after
// packing; engine thread.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "core/model/parts/weight_roles.h"
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
  const std::vector<std::unique_ptr<Linear>>& experts_of(WeightRole role) const {
    return experts[static_cast<std::size_t>(role)];
  }

 private:
  static const float* data(const ByRole<std::unique_ptr<Buffer>>& all, WeightRole role) {
    const auto& buffer = all[static_cast<std::size_t>(role)];
    return buffer == nullptr ? nullptr : buffer->data();
  }
};
using PackedLayer = PackedGroup;

}  // namespace quire
