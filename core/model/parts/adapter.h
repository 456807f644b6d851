// Adapter: low-rank changes of one model's products (LoRA, arXiv 2106.09685), packed for its backend: a product's
// output gains (x down^T) up^T. Immutable after construction; any thread. Read from a GGUF adapter, under llama.cpp's
// names, or a directory of Hugging Face's PEFT. Invariant: every tensor of the file changes something.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/model/parts/weight_roles.h"
#include "kernels/backend.h"

namespace quire {

class Adapter {
 public:
  using Group = std::array<std::vector<LowRank>, kNumWeightRoles>;  // by product
  using Experts = std::vector<std::vector<LowRank>>;                // by expert; empty: none
  struct Layer {
    Group products;
    Experts gate_up;
    Experts down;
  };

  Adapter(std::vector<Layer> layers, Group model, std::string content_key);

  std::span<const LowRank> of_layer(std::int64_t layer, WeightRole product) const {
    return layers_[static_cast<std::size_t>(layer)].products[static_cast<std::size_t>(product)];
  }
  ExpertChange of_experts(std::int64_t layer) const {
    const Layer& from = layers_[static_cast<std::size_t>(layer)];
    return {from.gate_up, from.down};
  }
  std::span<const LowRank> of_model(WeightRole product) const { return model_[static_cast<std::size_t>(product)]; }
  bool changes_experts() const { return changes_experts_; }
  std::int64_t rank() const { return rank_; }   // the largest
  std::size_t bytes() const { return bytes_; }  // resident
  // Names the inputs that K and V depend on: a hash of the file's weights and of the scales as used.
  const std::string& content_key() const { return content_key_; }

 private:
  void count(std::span<const std::vector<LowRank>> lists);

  const std::vector<Layer> layers_;
  const Group model_;
  const std::string content_key_;
  bool changes_experts_ = false;
  std::int64_t rank_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace quire
