#include "core/model/layers/abilities.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/base/result.h"
#include "core/model/parts/parts.h"

namespace quire {

namespace {

const char* lacking_beside_layers(const ModelSpec& spec, const Backend& backend) {
  const bool adds_inputs = spec.has_positions || spec.num_token_types > 0 || spec.per_layer_size > 0;
  const bool scales = spec.embedding_scale != 1.0 || spec.residual_scale != 1.0 || spec.logit_scale != 1.0;
  return first_lacking({{!spec.is_causal, Ability::kMaskedAttention, "attention in both directions"},
                        {spec.num_streams > 1, Ability::kStreams, "residual streams"},
                        {spec.norm != NormKind::kRms, Ability::kGraph, "layer norms"},
                        {adds_inputs, Ability::kGraph, "embeddings of positions, types or layers"},
                        {scales, Ability::kGraph, "scaled embeddings, residuals or logits"},
                        {spec.logit_softcap != 0.0, Ability::kGraph, "a soft cap of logits"},
                        {spec.laurel_rank > 0, Ability::kGraph, "low-rank branches"},
                        {!spec.dense_sizes.empty(), Ability::kGraph, "products behind the last norm"},
                        {spec.has_classifier_dense || spec.scores_mean, Ability::kGraph, "classifiers"}},
                       backend);
}

const char* lacking_layer(const LayerSpec& layer, const ModelSpec& spec, Backend& backend) {
  if (const char* const what = mixer_part(layer).lacking(layer, spec, backend)) return what;
  const bool adds_branches = layer.is_parallel || layer.mixer_output_norm != WeightRole::kNoRole ||
                             layer.ffn_output_norm != WeightRole::kNoRole ||
                             layer.mixer_sum_norm_2 != WeightRole::kNoRole;
  const char* const lacking =
      first_lacking({{adds_branches, Ability::kGraph, "branches that are added behind a norm"},
                     {layer.output_scale, Ability::kGraph, "layers with a factor of their own"}},
                    backend);
  return lacking == nullptr ? feed_forward_part(layer).lacking(layer, spec, backend) : lacking;
}

}  // namespace

void require_abilities(const ModelSpec& spec, Backend& backend) {
  const char* lacking = lacking_beside_layers(spec, backend);
  for (const LayerSpec& layer : spec.layers) {
    if (lacking == nullptr) lacking = lacking_layer(layer, spec, backend);
  }
  const bool predicts = spec.next_tokens.has_value() && backend.recurrent() == nullptr;
  if (lacking == nullptr && predicts) lacking = "blocks that predict further tokens";
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
