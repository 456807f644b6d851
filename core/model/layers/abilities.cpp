#include "core/model/layers/abilities.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>

#include "core/base/result.h"

namespace quire {

namespace {

struct Need {
  bool needed;
  Ability ability;
  const char* what;
};

using NeedList = std::initializer_list<Need>;

const char* first_lacking(const NeedList& needs, const Backend& backend) {
  const auto* const found =
      std::ranges::find_if(needs, [&](const Need& need) { return need.needed && !backend.has(need.ability); });
  return found == needs.end() ? nullptr : found->what;
}

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

const char* lacking_attention(const LayerSpec& layer, const ModelSpec& spec, const Backend& backend) {
  const AttentionSpec& attention = layer.attention;
  const KvLayerShape cached = cached_heads(layer);
  const bool is_chunked = attention.chunk != 0 && attention.chunk < spec.config.max_context;
  const bool layer_norms = attention.qk_norm == QkNorm::kLayerFull || attention.qk_norm == QkNorm::kLayerPerHead;
  const bool scales = attention.clamp != 0.0 || attention.value_scale != 1.0 || attention.temperature != 0.0;
  return first_lacking(
      {{attention.window != 0, Ability::kMaskedAttention, "attention windows"},
       {is_chunked, Ability::kMaskedAttention, "attention in chunks"},
       {attention.softcap != 0.0, Ability::kMaskedAttention, "soft caps of attention"},
       {attention.has_sinks, Ability::kMaskedAttention, "attention sinks"},
       {attention.alibi != 0.0, Ability::kMaskedAttention, "attention slopes"},
       {cached.key_dim != cached.value_dim, Ability::kMaskedAttention, "keys and values of different sizes"},
       {cached.key_dim != attention.key_dim || cached.value_dim != attention.value_dim, Ability::kGraph,
        "heads of this size"},
       {layer_norms, Ability::kGraph, "layer norms of queries and keys"},
       {scales || attention.value_is_key, Ability::kGraph, "scaled or shared queries, keys or values"},
       {attention.gate != OutputGate::kNone, Ability::kGraph, "gates of attention"}},
      backend);
}

const char* lacking_feed_forward(const FeedForwardSpec& ffn, const Backend& backend) {
  using Kind = FeedForwardSpec::Kind;
  if (ffn.kind == Kind::kNone) return nullptr;
  const bool is_swiglu = ffn.is_gated && ffn.activation.kind == Nonlinearity::kSilu && ffn.activation.limit == 0.0F;
  return first_lacking({{ffn.kind != Kind::kDense, Ability::kExperts, "experts"},
                        {ffn.sparsity.has_value(), Ability::kStreams, "sparse feed-forwards"},
                        {!is_swiglu || ffn.sub_norm, Ability::kGraph, "feed-forwards other than SwiGLU"}},
                       backend);
}

const char* lacking_layer(const LayerSpec& layer, const ModelSpec& spec, Backend& backend) {
  const bool attends = layer.mixer == Mixer::kAttention || layer.mixer == Mixer::kAttentionAndMamba2;
  const bool is_latent = layer.mixer == Mixer::kLatent;
  const bool is_recurrent = layer.mixer != Mixer::kNone && layer.mixer != Mixer::kAttention && !is_latent;
  if (is_recurrent && backend.recurrent() == nullptr) return "recurrent layers";
  const bool has_matrix = is_recurrent && layer.mixer != Mixer::kMamba && layer.mixer != Mixer::kShortConv;
  if (has_matrix && layer.recurrent.key_dim > backend.recurrent()->most_key_dim())
    return "recurrent states of this size";
  const bool adds_branches = layer.is_parallel || layer.mixer_output_norm != WeightRole::kNoRole ||
                             layer.ffn_output_norm != WeightRole::kNoRole ||
                             layer.mixer_sum_norm_2 != WeightRole::kNoRole;
  const char* const lacking =
      first_lacking({{is_latent, Ability::kHeadLinear, "latent attention"},
                     {is_latent, Ability::kMaskedAttention, "latent attention"},
                     {adds_branches, Ability::kGraph, "branches that are added behind a norm"},
                     {layer.output_scale, Ability::kGraph, "layers with a factor of their own"}},
                    backend);
  if (lacking != nullptr) return lacking;
  if (const char* const what = attends ? lacking_attention(layer, spec, backend) : nullptr) return what;
  return lacking_feed_forward(layer.feed_forward, backend);
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
