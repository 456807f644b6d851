#include "core/model/parts/adapter.h"

#include <algorithm>
#include <utility>

namespace quire {

Adapter::Adapter(std::vector<Layer> layers, Group model, std::string content_key)
    : layers_(std::move(layers)), model_(std::move(model)), content_key_(std::move(content_key)) {
  for (const Layer& layer : layers_) {
    count(layer.products);
    count(layer.gate_up);
    count(layer.down);
    changes_experts_ = changes_experts_ || !layer.gate_up.empty() || !layer.down.empty();
  }
  count(model_);
}

void Adapter::count(std::span<const std::vector<LowRank>> lists) {
  for (const std::vector<LowRank>& list : lists) {
    for (const LowRank& part : list) {
      rank_ = std::max(rank_, part.down->out_features());
      bytes_ += part.down->bytes() + part.up->bytes();
    }
  }
}

}  // namespace quire
