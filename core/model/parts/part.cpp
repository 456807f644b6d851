#include "core/model/parts/part.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {

void Part::store(const LayerRun& /*layer*/, const ProductInput& /*in*/, std::int64_t /*rows*/) const {
  QUIRE_CHECK(false, "K and V are stored of layers with attention");
}

const char* first_lacking(std::initializer_list<AbilityNeed> needs, const Backend& backend) {
  const auto* const found =
      std::ranges::find_if(needs, [&](const AbilityNeed& need) { return need.needed && !backend.has(need.ability); });
  return found == needs.end() ? nullptr : found->what;
}

}  // namespace quire
