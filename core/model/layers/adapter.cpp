#include "core/model/layers/adapter.h"

#include <algorithm>
#include <utility>

namespace quire {

Adapter::Adapter(std::vector<Group> layers, Group model, std::string content_key)
    : layers_(std::move(layers)), model_(std::move(model)), content_key_(std::move(content_key)) {
  const auto count = [this](const Group& group) {
    for (const std::vector<LowRank>& product : group) {
      for (const LowRank& part : product) {
        rank_ = std::max(rank_, part.down->out_features());
        bytes_ += part.down->bytes() + part.up->bytes();
      }
    }
  };
  std::ranges::for_each(layers_, count);
  count(model_);
}

}  // namespace quire
