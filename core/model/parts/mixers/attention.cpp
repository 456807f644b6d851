#include "core/model/parts/mixers/attention.h"

#include <cmath>

#include "core/model/parts/layer_run.h"
#include "core/model/parts/rank_cut.h"
#include "core/model/parts/spec_checker.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"

namespace quire {

std::span<const RoleName> Attention::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kAttentionSubNorm, {"attn_sub_norm", ""}},
      {Role::kQuery, {"attn_q", "self_attn.q_proj"}},
      {Role::kKey, {"attn_k", "self_attn.k_proj"}},
      {Role::kValue, {"attn_v", "self_attn.v_proj"}},
      {Role::kQkv, {"attn_qkv", "self_attn.qkv_proj"}},
      {Role::kAttentionOutput, {"attn_output", "self_attn.o_proj"}},
      {Role::kQueryNorm, {"attn_q_norm", "self_attn.q_norm"}},
      {Role::kKeyNorm, {"attn_k_norm", "self_attn.k_norm"}},
      {Role::kSinks, {"attn_sinks", "self_attn.sinks$"}},
      {Role::kAttentionGate, {"attn_gate", ""}},
  };
  return kRoles;
}

void Attention::list_weights(const LayerSpec& layer, WeightList& list) const {
  const AttentionSpec& attention = layer.attention;
  const std::int64_t hidden = list.hidden_size();
  const std::int64_t query = attention.num_heads * attention.key_dim;
  const std::int64_t key = attention.num_kv_heads * attention.key_dim;
  const std::int64_t value = attention.num_kv_heads * attention.value_dim;
  const bool has_kv = attention.kv_source < 0;
  if (attention.fused_qkv) {
    list.product(Role::kQkv, Role::kQuery, query + key + value, hidden);
  } else {
    const bool with_gate = attention.gate == OutputGate::kInQuery;
    list.product(Role::kQuery, Role::kQuery, with_gate ? 2 * query : query, hidden, with_gate ? attention.key_dim : 0);
    if (has_kv) list.product(Role::kKey, Role::kQuery, key, hidden);
    if (has_kv && !attention.value_is_key) list.product(Role::kValue, Role::kQuery, value, hidden).is_sensitive = true;
  }
  const std::int64_t width = attention.num_heads * attention.value_dim;
  if (attention.gate == OutputGate::kPerHead) list.alone(Role::kAttentionGate, attention.num_heads, hidden);
  if (attention.gate == OutputGate::kFull) list.alone(Role::kAttentionGate, width, hidden);
  switch (attention.qk_norm) {
    case QkNorm::kNone: break;
    case QkNorm::kPerHead:
      list.vector(Role::kQueryNorm, attention.key_dim);
      if (has_kv) list.vector(Role::kKeyNorm, attention.key_dim);
      break;
    default: list.vector(Role::kQueryNorm, query); list.vector(Role::kKeyNorm, key);
  }
  if (attention.has_sinks) list.offsets(Role::kSinks, attention.num_heads);
  if (attention.output_norm) list.vector(Role::kAttentionSubNorm, width);
  list.alone(Role::kAttentionOutput, hidden, width);
}

std::int64_t Attention::turned_rows(const LayerSpec& layer, WeightRole role) const {
  return role == Role::kQuery || role == Role::kKey ? layer.attention.key_dim : 0;
}

void Attention::check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const {
  const AttentionSpec& attention = layer.attention;
  check.in_range("the number of heads", attention.num_heads, 1, 1 << 14);
  check.in_range("the number of key-value heads", attention.num_kv_heads, 1, attention.num_heads);
  check.require(attention.num_heads % attention.num_kv_heads == 0,
                fmt::format("{} heads cannot share {} key-value heads", attention.num_heads, attention.num_kv_heads));
  for (const std::int64_t dim : {attention.key_dim, attention.value_dim})
    check.in_range("the head dimension", dim, 1, 1 << 12);
  check.in_range("the attention window", attention.window, 0, std::int64_t{1} << 40);
  check.in_range("the attention chunk", attention.chunk, 0, std::int64_t{1} << 40);
  check.require(attention.kv_source < index, "a layer shares K and V of a later one");
  check.require(attention.temperature == 0.0 || attention.temperature_length >= 1.0,
                "the attention temperature's length is below 1");
  check.require(!attention.fused_qkv ||
                    (attention.kv_source < 0 && !attention.value_is_key && attention.gate != OutputGate::kInQuery),
                "the fused projection does not fit the architecture");
}

void Attention::fit(const LayerSpec& layer, std::int64_t /*hidden_size*/, Widths& widths) const {
  const AttentionSpec& attention = layer.attention;
  const std::int64_t query = attention.num_heads * attention.key_dim;
  const std::int64_t gate = attention.gate == OutputGate::kInQuery ? query : 0;
  widths.fit(kQkv, query + gate + attention.num_kv_heads * (attention.key_dim + attention.value_dim));
  widths.fit(kAttended, attention.num_heads * attention.value_dim);
  if (attention.gate == OutputGate::kPerHead) widths.fit(kActivated, attention.num_heads);
  if (attention.gate == OutputGate::kFull) widths.fit(kActivated, attention.num_heads * attention.value_dim);
  if (!is_padded(layer)) return;
  const KvLayerShape cached = cached_heads(layer);
  widths.fit(kWideQuery, attention.num_heads * cached.key_dim);
  widths.fit(kWideKey, attention.num_kv_heads * cached.key_dim);
  widths.fit(kWideValue, attention.num_kv_heads * cached.value_dim);
  widths.fit(kWideAttended, attention.num_heads * cached.value_dim);
}

void Attention::bound(const LayerSpec& layer, StepBounds& step) const {
  const KvLayerShape cached = cached_heads(layer);
  step.partial_floats =
      std::max(step.partial_floats, layer.attention.num_heads * (cached.key_dim + cached.value_dim + 2));
}

const char* Attention::lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const {
  const AttentionSpec& attention = layer.attention;
  const KvLayerShape cached = cached_heads(layer);
  const bool is_chunked = attention.chunk != 0 && attention.chunk < model.config.max_context;
  const bool layer_norms = attention.qk_norm == QkNorm::kLayerFull || attention.qk_norm == QkNorm::kLayerPerHead;
  const bool scales = attention.clamp != 0.0 || attention.value_scale != 1.0 || attention.temperature != 0.0;
  return first_lacking(
      {{attention.window != 0, Ability::kMaskedAttention, "attention windows"},
       {is_chunked, Ability::kMaskedAttention, "attention in chunks"},
       {attention.softcap != 0.0, Ability::kMaskedAttention, "soft caps of attention"},
       {attention.has_sinks, Ability::kMaskedAttention, "attention sinks"},
       {attention.alibi != 0.0, Ability::kMaskedAttention, "attention slopes"},
       {cached.key_dim != cached.value_dim, Ability::kMaskedAttention, "keys and values of different sizes"},
       {is_padded(layer), Ability::kGraph, "heads of this size"},
       {layer_norms, Ability::kGraph, "layer norms of queries and keys"},
       {scales || attention.value_is_key, Ability::kGraph, "scaled or shared queries, keys or values"},
       {attention.gate != OutputGate::kNone, Ability::kGraph, "gates of attention"}},
      backend);
}

bool Attention::is_plain(const LayerSpec& layer) const {
  return layer.attention.gate == OutputGate::kNone && !layer.attention.output_norm;
}

std::int64_t Attention::rotated_dim(const LayerSpec& layer) const {
  return layer.attention.rope >= 0 ? layer.attention.key_dim : 0;
}

KvGroupSpec Attention::kept(const LayerSpec& layer) const {
  const AttentionSpec& attention = layer.attention;
  if (attention.kv_source >= 0) return {};
  return {.kind = KvGroupKind::kFull,
          .num_layers = 1,
          .num_kv_heads = attention.num_kv_heads,
          .head_dim = attention.key_dim,
          .value_dim = attention.value_dim};
}

KvLayerShape Attention::cached_heads(const LayerSpec& layer) const {
  return {layer.attention.num_kv_heads, padded(layer.attention.key_dim), padded(layer.attention.value_dim)};
}

bool Attention::is_padded(const LayerSpec& layer) const {
  const KvLayerShape cached = cached_heads(layer);
  return cached.key_dim != layer.attention.key_dim || cached.value_dim != layer.attention.value_dim;
}

std::string Attention::why_not_cut(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) const {
  const AttentionSpec& attention = layer.attention;
  if (attention.num_kv_heads % num_ranks != 0 || attention.num_heads % num_ranks != 0)
    return fmt::format("{} heads of attention over {} of K and V cannot be divided", attention.num_heads,
                       attention.num_kv_heads);
  const bool norms_all =
      !attention.unit_qk_norm && (attention.qk_norm == QkNorm::kFullWidth || attention.qk_norm == QkNorm::kLayerFull);
  if (norms_all || attention.output_norm) return "a norm of attention is over all heads";
  if (attention.alibi != 0.0) return "its slopes of attention are those of all heads";
  const RankCut::Products out = RankCut::product_of(weights, Role::kAttentionOutput);
  if (RankCut::is_reordered(out)) return "the columns of the output of attention are in an order of their own";
  const std::int64_t width = attention.num_heads / num_ranks * attention.value_dim;
  const std::int64_t block = RankCut::features_of_block(out);
  if (width % block == 0) return "";
  return fmt::format("the {} heads of {} features are {} for each, which blocks of {} do not divide",
                     attention.num_heads, attention.value_dim, width, block);
}

void Attention::cut(const LayerSpec& layer, const RankCut& rank, LayerSpec& spec, SourceGroup& group) const {
  const AttentionSpec& whole = layer.attention;
  spec.attention.num_heads = whole.num_heads / rank.num_ranks();
  spec.attention.num_kv_heads = whole.num_kv_heads / rank.num_ranks();
  const FeatureRange query = rank.heads(whole.num_heads, whole.key_dim);
  const FeatureRange key = rank.heads(whole.num_kv_heads, whole.key_dim);
  const FeatureRange value = rank.heads(whole.num_kv_heads, whole.value_dim);
  const FeatureRange attended = rank.heads(whole.num_heads, whole.value_dim);
  const FeatureRange heads = rank.heads(whole.num_heads, 1);
  std::vector<FeatureRange> rows{query};
  std::int64_t end = whole.num_heads * whole.key_dim;
  const auto take = [&](FeatureRange range, std::int64_t size) {
    rows.push_back({end + range.begin, range.count});
    end += size;
  };
  if (whole.gate == OutputGate::kInQuery) take(query, end);
  if (whole.kv_source < 0) take(key, whole.num_kv_heads * whole.key_dim);
  if (whole.kv_source < 0 && !whole.value_is_key) take(value, whole.num_kv_heads * whole.value_dim);
  RankCut::take_rows(group, Role::kQuery, rows);
  if (whole.gate == OutputGate::kPerHead) RankCut::take_rows(group, Role::kAttentionGate, {heads});
  if (whole.gate == OutputGate::kFull) RankCut::take_rows(group, Role::kAttentionGate, {attended});
  rank.take_columns(group.products.at(Role::kAttentionOutput), attended);
  RankCut::take_values(group.vectors, Role::kSinks, heads);
  if (whole.qk_norm != QkNorm::kLayerPerHead) return;
  for (auto* vectors : {&group.vectors, &group.biases}) {
    RankCut::take_values(*vectors, Role::kQueryNorm, query);
    RankCut::take_values(*vectors, Role::kKeyNorm, key);
  }
}

bool Attention::takes_one_product(const LayerSpec& layer) const {
  return layer.attention.gate == OutputGate::kNone || layer.attention.gate == OutputGate::kInQuery;
}

// --- computation -----------------------------------------------------------------------------------------------------

void Attention::run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const {
  const AttentionSpec& attention = layer.spec.attention;
  const Projected from = project(layer, in, out.rows);
  const MatrixView attended = layer.room(kAttended, out.rows, attention.num_heads * attention.value_dim);
  store_heads(layer, from.k, from.v);
  attend(layer, from.q, attended);
  if (attention.value_scale != 1.0) layer.graph().scale(attended, static_cast<float>(attention.value_scale));
  if (from.gate.cols > 0) layer.graph().gate(Nonlinearity::kSigmoid, from.gate, attended);
  gate_output(layer, in, attended);
  if (attention.output_norm)
    layer.backend().rms_norm(attended, layer.vector(Role::kAttentionSubNorm), layer.eps(), attended);
  layer.multiply_cut(Role::kAttentionOutput, attended, out, accumulate);
}

void Attention::store(const LayerRun& layer, const ProductInput& in, std::int64_t rows) const {
  const Projected made = project(layer, in, rows);
  store_heads(layer, made.k, made.v);
}

Attention::Projected Attention::project(const LayerRun& layer, const ProductInput& in, std::int64_t rows) {
  const AttentionSpec& attention = layer.spec.attention;
  const std::int64_t query_size = attention.num_heads * attention.key_dim;
  const std::int64_t gate_size = attention.gate == OutputGate::kInQuery ? query_size : 0;
  const bool has_kv = attention.kv_source < 0;
  const std::int64_t key_size = has_kv ? attention.num_kv_heads * attention.key_dim : 0;
  const std::int64_t value_size = has_kv ? attention.num_kv_heads * attention.value_dim : 0;
  const MatrixView qkv = layer.room(kQkv, rows, query_size + gate_size + key_size + value_size);
  const MatrixView q = columns(qkv, 0, query_size);
  const MatrixView k = columns(qkv, query_size + gate_size, key_size);
  const MatrixView v = columns(qkv, query_size + gate_size + key_size, value_size);
  const bool copies_value = has_kv && attention.value_is_key;
  layer.multiply(Role::kQuery, in, columns(qkv, 0, qkv.cols - (copies_value ? value_size : 0)), false);
  const auto bound = static_cast<float>(attention.clamp);
  if (bound != 0.0F) layer.graph().clamp(qkv, -bound, bound);
  if (copies_value) layer.graph().copy(k, v);
  if (attention.value_norm && has_kv)
    layer.backend().head_rms_norm(v, attention.num_kv_heads, attention.value_dim, layer.work.ones->data(), layer.eps());
  if (!attention.norm_after_rope) norm_queries_and_keys(layer, q, k);
  rotate(layer, q, k);
  if (attention.norm_after_rope) norm_queries_and_keys(layer, q, k);
  if (attention.temperature != 0.0) scale_by_temperature(layer, q);
  return {.q = q, .k = k, .v = v, .gate = columns(qkv, query_size, gate_size)};
}

void Attention::gate_output(const LayerRun& layer, const ProductInput& in, MatrixView attended) {
  const AttentionSpec& attention = layer.spec.attention;
  if (attention.gate != OutputGate::kPerHead && attention.gate != OutputGate::kFull) return;
  const std::int64_t width = attention.gate == OutputGate::kFull ? attended.cols : attention.num_heads;
  const MatrixView gates = layer.room(kActivated, attended.rows, width);
  layer.multiply(Role::kAttentionGate, in, gates, false);
  layer.graph().gate(Nonlinearity::kSigmoid, gates, attended);
}

void Attention::norm_queries_and_keys(const LayerRun& layer, MatrixView q, MatrixView k) {
  const AttentionSpec& attention = layer.spec.attention;
  if (attention.qk_norm == QkNorm::kNone && !attention.unit_qk_norm) return;
  norm_heads(layer, Role::kQueryNorm, q, attention.num_heads);
  if (k.cols > 0) norm_heads(layer, Role::kKeyNorm, k, attention.num_kv_heads);
}

void Attention::norm_heads(const LayerRun& layer, WeightRole role, MatrixView heads, std::int64_t count) {
  const std::int64_t key_dim = layer.spec.attention.key_dim;
  const float* weight = layer.vector(role);
  const float* bias = layer.weights.bias(role);
  Backend& backend = layer.backend();
  switch (layer.spec.attention.qk_norm) {
    case QkNorm::kNone: backend.head_rms_norm(heads, count, key_dim, layer.work.ones->data(), layer.eps()); break;
    case QkNorm::kPerHead: backend.head_rms_norm(heads, count, key_dim, weight, layer.eps()); break;
    case QkNorm::kFullWidth: backend.rms_norm(heads, weight, layer.eps(), heads); break;
    case QkNorm::kLayerFull: layer.graph().layer_norm(heads, weight, bias, layer.eps(), heads); break;
    case QkNorm::kLayerPerHead:
      for (std::int64_t head = 0; head < count; ++head) {
        const std::int64_t first = head * key_dim;
        const MatrixView one = columns(heads, first, key_dim);
        layer.graph().layer_norm(one, weight + first, bias == nullptr ? nullptr : bias + first, layer.eps(), one);
      }
      break;
  }
}

void Attention::rotate(const LayerRun& layer, MatrixView q, MatrixView k) {
  const AttentionSpec& attention = layer.spec.attention;
  if (attention.rope < 0) return;
  const std::int64_t dim = attention.key_dim;
  if (q.data + q.cols == k.data)
    return layer.rotate({q.data, q.rows, q.cols + k.cols, q.stride}, attention.num_heads + k.cols / dim, dim);
  layer.rotate(q, attention.num_heads, dim);
  if (k.cols > 0) layer.rotate(k, attention.num_kv_heads, dim);
}

void Attention::scale_by_temperature(const LayerRun& layer, MatrixView q) {
  const AttentionSpec& attention = layer.spec.attention;
  std::vector<float>& factors = layer.work.row_factors;
  factors.clear();
  const Slice& slice = layer.slice;
  for (std::size_t i = 0; i < slice.positions.size(); i += static_cast<std::size_t>(slice.positions_per_row)) {
    const std::int32_t position = slice.positions[i];
    const double periods = std::floor((position + attention.temperature_offset) / attention.temperature_length);
    factors.push_back(static_cast<float>(1.0 + attention.temperature * std::log(periods + 1.0)));
  }
  layer.graph().scale_rows(q, factors);
}

MatrixView Attention::widened(const LayerRun& layer, ActivationName to, MatrixView heads, std::int64_t count,
                              std::int64_t width) {
  const std::int64_t from = heads.cols / count;
  const MatrixView out = layer.room(to, heads.rows, count * width);
  const MatrixView zeros{layer.work.zeros->data(), heads.rows, width - from, 0};
  for (std::int64_t head = 0; head < count; ++head) {
    layer.graph().copy(columns(heads, head * from, from), columns(out, head * width, from));
    if (width > from) layer.graph().copy(zeros, columns(out, head * width + from, width - from));
  }
  return out;
}

void Attention::narrow(const LayerRun& layer, MatrixView heads, std::int64_t count, MatrixView out) {
  const std::int64_t from = heads.cols / count;
  const std::int64_t to = out.cols / count;
  for (std::int64_t head = 0; head < count; ++head)
    layer.graph().copy(columns(heads, head * from, to), columns(out, head * to, to));
}

void Attention::store_heads(const LayerRun& layer, MatrixView k, MatrixView v) const {
  const AttentionSpec& attention = layer.spec.attention;
  if (attention.kv_source >= 0) return;
  if (is_padded(layer.spec)) {
    const KvLayerShape cached = cached_heads(layer.spec);
    k = widened(layer, kWideKey, k, attention.num_kv_heads, cached.key_dim);
    v = widened(layer, kWideValue, v, attention.num_kv_heads, cached.value_dim);
  }
  layer.backend().store_kv(layer.kept().kv, layer.kv_layer(layer.index), layer.kept().batch, k, v);
}

void Attention::attend(const LayerRun& layer, MatrixView q, MatrixView out) const {
  if (!is_padded(layer.spec)) return attend_cached(layer, q, out);
  const std::int64_t heads = layer.spec.attention.num_heads;
  const KvLayerShape cached = cached_heads(layer.spec);
  const MatrixView attended = layer.room(kWideAttended, out.rows, heads * cached.value_dim);
  attend_cached(layer, widened(layer, kWideQuery, q, heads, cached.key_dim), attended);
  narrow(layer, attended, heads, out);
}

void Attention::attend_cached(const LayerRun& layer, MatrixView q, MatrixView out) const {
  const AttentionSpec& attention = layer.spec.attention;
  const std::int64_t source = layer.kv_layer(attention.kv_source < 0 ? layer.index : attention.kv_source);
  const auto scale = static_cast<float>(attention.scale);
  const KvLayerShape cached = cached_heads(layer.spec);
  const LayerRun::Kept kept = layer.kept();
  const bool is_simple = attention.window == 0 && attention.softcap == 0.0 && !attention.has_sinks &&
                         attention.alibi == 0.0 && cached.value_dim == cached.key_dim &&
                         (attention.chunk == 0 || attention.chunk >= layer.model().config.max_context);
  if (is_simple) return layer.backend().attention(kept.kv, source, kept.batch, q, attention.num_heads, scale, out);
  const AttentionOptions options{.num_heads = attention.num_heads,
                                 .scale = scale,
                                 .causal = layer.model().is_causal,
                                 .window = attention.window,
                                 .chunk = attention.chunk,
                                 .softcap = static_cast<float>(attention.softcap),
                                 .sinks = layer.vector(Role::kSinks),
                                 .alibi = static_cast<float>(attention.alibi)};
  layer.graph().attention(kept.kv, source, kept.batch, q, options, out);
}

}  // namespace quire
