// WeightSources: the weights of a model by role, as views into its files; norms and biases decoded. Immutable after
// construction; any thread. The same collector serves every file format: tensors come under GGUF's names.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/model/formats/tensor_table.h"
#include "core/model/parts/model_spec.h"
#include "core/model/parts/source_group.h"

namespace quire {

struct WeightSources {
  std::vector<SourceGroup> layers;
  SourceGroup model;
  std::vector<std::shared_ptr<const void>> owned;  // memory of weights that are not views into the files

  const WeightSource& embedding() const { return model.rows.at(WeightRole::kTokenEmbedding); }
  // Every product, experts one by one, in a fixed order: layers first, the head last.
  void for_each_product(const std::function<void(const LinearSource&)>& visit) const;
  std::int64_t num_vector_elements() const;
  std::size_t num_products() const;
};

// Takes every role from the table. Throws StartupError naming the weight that is missing, mis-shaped or of an
// unsupported type.
WeightSources collect_weights(const ModelSpec& spec, TensorTable& tensors);

}  // namespace quire
