// Attention and latent attention.
#include <cmath>

#include "core/model/layers/transformer.h"
#include "core/model/layers/views.h"
#include "kernels/check.h"

namespace quire {

using Role = WeightRole;

Transformer::Projected Transformer::project(const Layer& layer, const ProductInput& in, std::int64_t rows) {
  const AttentionSpec& attention = layer.spec.attention;
  const std::int64_t query_size = attention.num_heads * attention.key_dim;
  const std::int64_t gate_size = attention.gate == OutputGate::kInQuery ? query_size : 0;
  const bool has_kv = attention.kv_source < 0;
  const std::int64_t key_size = has_kv ? attention.num_kv_heads * attention.key_dim : 0;
  const std::int64_t value_size = has_kv ? attention.num_kv_heads * attention.value_dim : 0;
  const MatrixView qkv = room(kQkv, rows, query_size + gate_size + key_size + value_size);
  const MatrixView q = columns(qkv, 0, query_size);
  const MatrixView k = columns(qkv, query_size + gate_size, key_size);
  const MatrixView v = columns(qkv, query_size + gate_size + key_size, value_size);
  const bool copies_value = has_kv && attention.value_is_key;
  multiply(layer, Role::kQuery, in, columns(qkv, 0, qkv.cols - (copies_value ? value_size : 0)), false);
  if (attention.clamp != 0.0) graph().clamp(qkv, static_cast<float>(attention.clamp));
  if (copies_value) graph().copy(k, v);
  if (attention.value_norm && has_kv)
    backend_.head_rms_norm(v, attention.num_kv_heads, attention.value_dim, ones_->data(), eps_);
  if (!attention.norm_after_rope) norm_queries_and_keys(layer, q, k);
  rotate(layer, q, k);
  if (attention.norm_after_rope) norm_queries_and_keys(layer, q, k);
  if (attention.temperature != 0.0) scale_by_temperature(layer, q);
  return {.q = q, .k = k, .v = v, .gate = columns(qkv, query_size, gate_size)};
}

void Transformer::attend(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate) {
  const AttentionSpec& attention = layer.spec.attention;
  const Projected from = project(layer, in, out.rows);
  const MatrixView attended = room(kAttended, out.rows, attention.num_heads * attention.value_dim);
  store_and_attend(layer, from.q, from.k, from.v, attended);
  if (attention.value_scale != 1.0) graph().scale(attended, static_cast<float>(attention.value_scale));
  if (from.gate.cols > 0) graph().gate(Nonlinearity::kSigmoid, from.gate, attended);
  gate_output(layer, in, attended);
  if (attention.output_norm) backend_.rms_norm(attended, layer.weights.vector(Role::kAttentionSubNorm), eps_, attended);
  multiply_cut(layer, Role::kAttentionOutput, attended, out, accumulate);
}

void Transformer::gate_output(const Layer& layer, const ProductInput& in, MatrixView attended) {
  const AttentionSpec& attention = layer.spec.attention;
  if (attention.gate != OutputGate::kPerHead && attention.gate != OutputGate::kFull) return;
  const std::int64_t width = attention.gate == OutputGate::kFull ? attended.cols : attention.num_heads;
  const MatrixView gates = room(kActivated, attended.rows, width);
  multiply(layer, Role::kAttentionGate, in, gates, false);
  graph().gate(Nonlinearity::kSigmoid, gates, attended);
}

MatrixView Transformer::widened(Slot slot, MatrixView heads, std::int64_t count, std::int64_t to) {
  const std::int64_t from = heads.cols / count;
  const MatrixView out = room(slot, heads.rows, count * to);
  const MatrixView zeros{zeros_->data(), heads.rows, to - from, 0};
  for (std::int64_t head = 0; head < count; ++head) {
    graph().copy(columns(heads, head * from, from), columns(out, head * to, from));
    if (to > from) graph().copy(zeros, columns(out, head * to + from, to - from));
  }
  return out;
}

void Transformer::narrow(MatrixView heads, std::int64_t count, MatrixView out) {
  const std::int64_t from = heads.cols / count;
  const std::int64_t to = out.cols / count;
  for (std::int64_t head = 0; head < count; ++head)
    graph().copy(columns(heads, head * from, to), columns(out, head * to, to));
}

void Transformer::store(const Layer& layer, MatrixView k, MatrixView v) {
  const AttentionSpec& attention = layer.spec.attention;
  if (attention.kv_source >= 0) return;
  const KvLayerShape cached = cached_heads(layer.spec);
  if (cached.key_dim == attention.key_dim && cached.value_dim == attention.value_dim)
    return backend_.store_kv(kept(layer).kv, kv_layer(layer.index), kept(layer).batch, k, v);
  backend_.store_kv(kept(layer).kv, kv_layer(layer.index), kept(layer).batch,
                    widened(kWideKey, k, attention.num_kv_heads, cached.key_dim),
                    widened(kWideValue, v, attention.num_kv_heads, cached.value_dim));
}

void Transformer::store_and_attend(const Layer& layer, MatrixView q, MatrixView k, MatrixView v, MatrixView out) {
  const AttentionSpec& attention = layer.spec.attention;
  const KvLayerShape cached = cached_heads(layer.spec);
  store(layer, k, v);
  if (cached.key_dim == attention.key_dim && cached.value_dim == attention.value_dim)
    return run_attention(layer, q, out);
  const MatrixView attended = room(kWideAttended, out.rows, attention.num_heads * cached.value_dim);
  run_attention(layer, widened(kWideQuery, q, attention.num_heads, cached.key_dim), attended);
  narrow(attended, attention.num_heads, out);
}

void Transformer::norm_heads(const Layer& layer, WeightRole role, MatrixView heads, std::int64_t count) {
  const AttentionSpec& attention = layer.spec.attention;
  const float* weight = layer.weights.vector(role);
  const float* bias = layer.weights.bias(role);
  switch (attention.qk_norm) {
    case QkNorm::kNone: backend_.head_rms_norm(heads, count, attention.key_dim, ones_->data(), eps_); break;
    case QkNorm::kPerHead: backend_.head_rms_norm(heads, count, attention.key_dim, weight, eps_); break;
    case QkNorm::kFullWidth: backend_.rms_norm(heads, weight, eps_, heads); break;
    case QkNorm::kLayerFull: graph().layer_norm(heads, weight, bias, eps_, heads); break;
    case QkNorm::kLayerPerHead:
      for (std::int64_t head = 0; head < count; ++head) {
        const std::int64_t first = head * attention.key_dim;
        const MatrixView one = columns(heads, first, attention.key_dim);
        graph().layer_norm(one, weight + first, bias == nullptr ? nullptr : bias + first, eps_, one);
      }
      break;
  }
}

void Transformer::norm_queries_and_keys(const Layer& layer, MatrixView q, MatrixView k) {
  const AttentionSpec& attention = layer.spec.attention;
  if (attention.qk_norm == QkNorm::kNone && !attention.unit_qk_norm) return;
  norm_heads(layer, Role::kQueryNorm, q, attention.num_heads);
  if (k.cols > 0) norm_heads(layer, Role::kKeyNorm, k, attention.num_kv_heads);
}

void Transformer::rotate(const Layer& layer, MatrixView q, MatrixView k) {
  const AttentionSpec& attention = layer.spec.attention;
  if (attention.rope < 0) return;
  const auto id = static_cast<std::size_t>(attention.rope);
  const RopeStyle style = spec_.ropes[id].style;
  const Rotation& rotation = rotations_[id];
  if (q.data + q.cols == k.data) {
    const MatrixView both{q.data, q.rows, q.cols + k.cols, q.stride};
    return backend_.rope(both, attention.num_heads + k.cols / attention.key_dim, attention.key_dim, style, rotation.cos,
                         rotation.sin);
  }
  backend_.rope(q, attention.num_heads, attention.key_dim, style, rotation.cos, rotation.sin);
  if (k.cols > 0) backend_.rope(k, attention.num_kv_heads, attention.key_dim, style, rotation.cos, rotation.sin);
}

void Transformer::scale_by_temperature(const Layer& layer, MatrixView q) {
  const AttentionSpec& attention = layer.spec.attention;
  row_factors_.clear();
  const Slice& slice = layer.slice;
  for (std::size_t i = 0; i < slice.positions.size(); i += static_cast<std::size_t>(slice.positions_per_row)) {
    const std::int32_t position = slice.positions[i];
    const double periods = std::floor((position + attention.temperature_offset) / attention.temperature_length);
    row_factors_.push_back(static_cast<float>(1.0 + attention.temperature * std::log(periods + 1.0)));
  }
  graph().scale_rows(q, row_factors_);
}

void Transformer::run_attention(const Layer& layer, MatrixView q, MatrixView out) {
  const AttentionSpec& attention = layer.spec.attention;
  const std::int64_t source = kv_layer(attention.kv_source < 0 ? layer.index : attention.kv_source);
  const auto scale = static_cast<float>(attention.scale);
  const KvLayerShape cached = cached_heads(layer.spec);
  const bool is_plain = attention.window == 0 && attention.softcap == 0.0 && !attention.has_sinks &&
                        attention.alibi == 0.0 && cached.value_dim == cached.key_dim &&
                        (attention.chunk == 0 || attention.chunk >= spec_.config.max_context);
  if (is_plain)
    return backend_.attention(kept(layer).kv, source, kept(layer).batch, q, attention.num_heads, scale, out);
  const AttentionOptions options{.num_heads = attention.num_heads,
                                 .scale = scale,
                                 .causal = spec_.is_causal,
                                 .window = attention.window,
                                 .chunk = attention.chunk,
                                 .softcap = static_cast<float>(attention.softcap),
                                 .sinks = layer.weights.vector(Role::kSinks),
                                 .alibi = static_cast<float>(attention.alibi)};
  graph().attention(kept(layer).kv, source, kept(layer).batch, q, options, out);
}

// Queries are compared with the latent rows themselves: k_b is applied to the query instead of the keys, v_b to the sum
// of rows.
void Transformer::attend_latent(const Layer& layer, const ProductInput& in, MatrixView out, bool accumulate) {
  const LatentSpec& latent = layer.spec.latent;
  const AttentionSpec& attention = layer.spec.attention;
  const std::int64_t heads = attention.num_heads;
  const std::int64_t head_dim = latent.nope_dim + latent.rope_dim;
  const std::int64_t used = latent.kv_rank + latent.rope_dim;
  const std::int64_t row_dim = cached_heads(layer.spec).key_dim;
  const MatrixView both = room(kQuery, out.rows, heads * (head_dim + row_dim));
  const MatrixView q = columns(both, 0, heads * head_dim);
  const MatrixView absorbed = columns(both, heads * head_dim, heads * row_dim);
  const MatrixView compressed = room(kQkv, out.rows, latent.query_rank + row_dim);
  const MatrixView kv = columns(compressed, latent.query_rank, row_dim);
  const MatrixView kv_latent = columns(kv, 0, latent.kv_rank);
  const MatrixView k_rope = columns(kv, latent.kv_rank, latent.rope_dim);
  if (latent.query_rank > 0) {
    const MatrixView low = columns(compressed, 0, latent.query_rank);
    multiply(layer, Role::kQueryA, in, low, false);
    multiply(layer, Role::kQueryB, normed(low, layer.weights.vector(Role::kQueryANorm), eps_), q, false);
  } else {
    multiply(layer, Role::kQuery, in, q, false);
  }
  multiply(layer, Role::kKvA, in, columns(kv, 0, used), false);
  backend_.rms_norm(kv_latent, layer.weights.vector(Role::kKvANorm), eps_, kv_latent);
  const auto& key_b = layer.weights.experts[static_cast<std::size_t>(Role::kKeyB)];
  graph().head_linear(key_b, q, absorbed);
  const MatrixView zeros{zeros_->data(), out.rows, row_dim - used, 0};
  for (std::int64_t head = 0; head < heads; ++head) {
    graph().copy(columns(q, head * head_dim + latent.nope_dim, latent.rope_dim),
                 columns(absorbed, head * row_dim + latent.kv_rank, latent.rope_dim));
    if (zeros.cols > 0) graph().copy(zeros, columns(absorbed, head * row_dim + used, zeros.cols));
  }
  if (zeros.cols > 0) graph().copy(zeros, columns(kv, used, zeros.cols));
  if (attention.rope >= 0) {
    const auto id = static_cast<std::size_t>(attention.rope);
    const Rotation& rotation = rotations_[id];
    const RopeStyle style = spec_.ropes[id].style;
    backend_.rope(columns(absorbed, latent.kv_rank, absorbed.cols - latent.kv_rank), heads, row_dim, style,
                  rotation.cos, rotation.sin);
    backend_.rope(k_rope, 1, latent.rope_dim, style, rotation.cos, rotation.sin);
  }
  if (attention.temperature != 0.0) scale_by_temperature(layer, absorbed);
  backend_.store_kv(*layer.slice.kv, layer.index, layer.slice.attention, kv, {});
  const MatrixView attended = room(kAttended, out.rows, heads * (latent.kv_rank + latent.value_dim));
  const MatrixView summed = columns(attended, 0, heads * latent.kv_rank);
  const MatrixView values = columns(attended, summed.cols, heads * latent.value_dim);
  const AttentionOptions options{
      .num_heads = heads, .scale = static_cast<float>(attention.scale), .value_in_key = true};
  graph().attention(*layer.slice.kv, layer.index, layer.slice.attention, absorbed, options, summed);
  const auto& value_b = layer.weights.experts[static_cast<std::size_t>(Role::kValueB)];
  graph().head_linear(value_b, summed, values);
  multiply(layer, Role::kAttentionOutput, values, out, accumulate);
}

}  // namespace quire
