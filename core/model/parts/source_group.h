// SourceGroup: the weights of a layer, or of the model outside its layers, as views into files; norms and biases
// decoded. Plain values; any thread.
#pragma once

#include <map>
#include <vector>

#include "core/model/parts/weight_roles.h"
#include "kernels/backend.h"

namespace quire {

// A product: matrices stacked by rows; a bias for each row, or none.
struct LinearSource {
  std::vector<WeightSource> parts;
  std::vector<float> bias;
};

// Its maps are in the order of WeightRole.
struct SourceGroup {
  std::map<WeightRole, std::vector<float>> vectors;
  std::map<WeightRole, std::vector<float>> biases;  // biases beside these vectors
  std::map<WeightRole, WeightSource> rows;
  std::map<WeightRole, LinearSource> products;
  std::map<WeightRole, std::vector<LinearSource>> experts;
};

}  // namespace quire
