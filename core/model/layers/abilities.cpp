#include "core/model/layers/abilities.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/base/result.h"
#include "core/model/parts/parts.h"

namespace quire {

void require_abilities(const ModelSpec& spec, Backend& backend) {
  const char* lacking = nullptr;
  for (const ModelPart* part : model_parts()) {
    if (lacking == nullptr) lacking = part->lacking(spec, backend);
  }
  if (lacking == nullptr) return;
  throw StartupError(fmt::format("{} does not compute {}, which {} has: set backend.device to cpu", backend.name(),
                                 lacking, spec.config.architecture));
}

void require_cache(const KvLayout& layout, const Backend& backend) {
  if (layout.dtype != KvDType::kI4) return;
  constexpr const char* kInstead = "set kv_cache.dtype to i8";
  if (!backend.has(Ability::kInt4Cache))
    throw StartupError(
        fmt::format("{} keeps no KV cache of the type i4: {}, or backend.device to cpu", backend.name(), kInstead));
  for (std::int64_t layer = 0; layer < layout.num_layers; ++layer) {
    const KvLayerShape shape = layout.shape(layer);
    if (shape.num_heads == 0) continue;
    if (shape.value_dim == 0)
      throw StartupError(fmt::format("a KV cache of the type i4 does not keep latent attention: {}", kInstead));
    if (std::max(shape.key_dim, shape.value_dim) > kMostInt4HeadDim)
      throw StartupError(fmt::format("a KV cache of the type i4 keeps heads of up to {} features, not of {}: {}",
                                     kMostInt4HeadDim, std::max(shape.key_dim, shape.value_dim), kInstead));
  }
}

}  // namespace quire
