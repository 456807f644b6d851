// The trunk, attention and feed-forwards.
#include "tests/unit/model/reference/spec_reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/model/formats/ggml_types.h"
#include "tests/unit/model/reference/reference_math.h"

namespace quire::test {

using Vector = SpecReference::Vector;
using Rows = SpecReference::Rows;
using Role = WeightRole;

namespace {

std::size_t count_of(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

// The bias of attention by distance: half of the heads' slopes are powers of one root, the rest lie between.
double alibi_slope(double most, std::int64_t heads, std::int64_t head) {
  const auto whole = std::pow(2.0, std::floor(std::log2(static_cast<double>(heads))));
  const auto h = static_cast<double>(head);
  if (h < whole) return std::pow(2.0, -most / whole * (h + 1.0));
  return std::pow(2.0, -most / whole / 2.0 * (2.0 * (h - whole) + 1.0));
}

}  // namespace

SpecReference::SpecReference(const ModelSpec& spec, const GgufFile& weights) : spec_(spec) {
  for (const GgufTensor& tensor : weights.tensors()) {
    const std::int64_t count = num_elements(tensor.shape);
    std::vector<float> decoded(count_of(count));
    dequantize(tensor.type.value(), tensor.data.data(), count, decoded.data());
    tensors_[std::string(tensor.name)].assign(decoded.begin(), decoded.end());
  }
}

namespace {

std::string name_of(WeightRole role, std::int64_t layer, const char* suffix) {
  std::string name = gguf_name(role, layer);
  if (suffix == nullptr) return name;
  const std::string_view own = role_info(role).suffix;
  return name.substr(0, name.size() - own.size()) + suffix;
}

}  // namespace

bool SpecReference::has(WeightRole role, std::int64_t layer, const char* suffix) const {
  return tensors_.contains(name_of(role, layer, suffix));
}

const Vector& SpecReference::values(WeightRole role, std::int64_t layer, const char* suffix) const {
  const auto found = tensors_.find(name_of(role, layer, suffix));
  // Some files omit a norm's suffix.
  return found != tensors_.end() ? found->second : tensors_.at(name_of(role, layer, ""));
}

Vector SpecReference::product(WeightRole role, std::int64_t layer, const Vector& x, std::size_t first,
                              std::size_t rows) const {
  const Vector& matrix = values(role, layer);
  Vector out(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < x.size(); ++i)
      out[row] += matrix.at((first + row) * x.size() + i) * x[i];
  }
  if (has(role, layer, ".scale") && values(role, layer, ".scale").size() == 1) {
    for (double& value : out)
      value *= values(role, layer, ".scale")[0];
  }
  if (!has(role, layer, ".bias")) return out;
  for (std::size_t row = 0; row < rows; ++row)
    out[row] += values(role, layer, ".bias").at(first + row);
  return out;
}

Vector SpecReference::product(WeightRole role, std::int64_t layer, const Vector& x) const {
  return product(role, layer, x, 0, values(role, layer).size() / x.size());
}

Vector SpecReference::rms(std::span<const double> x, const Vector* weight) const {
  double squares = 0.0;
  for (const double value : x)
    squares += value * value;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + spec_.config.rms_eps);
  Vector out;
  for (std::size_t i = 0; i < x.size(); ++i)
    out.push_back(x[i] / root * (weight == nullptr ? 1.0 : weight->at(i)));
  return out;
}

Vector SpecReference::layer_norm(std::span<const double> x, std::span<const double> weight, const double* bias) const {
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  double squares = 0.0;
  for (const double value : x)
    squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(x.size()) + spec_.config.rms_eps);
  Vector out;
  for (std::size_t i = 0; i < x.size(); ++i)
    out.push_back((x[i] - mean) / deviation * weight[i] + (bias == nullptr ? 0.0 : bias[i]));
  return out;
}

Vector SpecReference::norm(WeightRole role, std::int64_t layer, const Vector& x) const {
  if (role == Role::kNoRole) return x;
  const Vector& weight = values(role, layer);
  if (spec_.norm != NormKind::kLayer) {
    Vector out = rms(x, &weight);
    if (has(role, layer, ".bias")) add_scaled(out, values(role, layer, ".bias"));
    return out;
  }
  return layer_norm(x, weight, has(role, layer, ".bias") ? values(role, layer, ".bias").data() : nullptr);
}

// Rotates the elements from `first` on of every head.
void SpecReference::rotate(Vector& heads, std::size_t dim, std::size_t first, int rope, std::size_t position) const {
  if (rope < 0) return;
  const RopeConfig& config = spec_.ropes.at(static_cast<std::size_t>(rope));
  const auto half = count_of(config.rotary_dim / 2);
  for (std::size_t begin = first; begin < heads.size(); begin += dim) {
    for (std::size_t pair = 0; pair < half; ++pair) {
      const bool interleaved = config.style == RopeStyle::kInterleaved;
      double& a = heads[begin + (interleaved ? 2 * pair : pair)];
      double& b = heads[begin + (interleaved ? 2 * pair + 1 : pair + half)];
      const double angle = static_cast<double>(position) * rotation_speed(config, pair);
      const double cosine = config.attention_factor * std::cos(angle);
      const double sine = config.attention_factor * std::sin(angle);
      const double turned = a * cosine - b * sine;
      b = a * sine + b * cosine;
      a = turned;
    }
  }
}

Rows SpecReference::embed(std::span<const std::int32_t> ids, std::vector<Rows>& per_layer) const {
  const auto width = count_of(spec_.config.hidden_size);
  const auto row_of = [&](Role role, std::size_t row, std::size_t size) {
    const auto begin = values(role, -1).begin() + static_cast<std::ptrdiff_t>(row * size);
    return Vector(begin, begin + static_cast<std::ptrdiff_t>(size));
  };
  const auto own = count_of(spec_.per_layer_size);
  const auto num_layers = count_of(spec_.config.num_layers);
  per_layer.resize(own > 0 ? num_layers : 0);
  Rows out;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    Vector x = row_of(Role::kTokenEmbedding, count_of(ids[t]), width);
    for (double& value : x)
      value *= spec_.embedding_scale;
    if (spec_.num_token_types > 0) add_scaled(x, row_of(Role::kTokenTypes, 0, width));
    if (spec_.has_positions) add_scaled(x, row_of(Role::kPositions, t, width));
    x = norm(spec_.embedding_norm, -1, x);
    if (own > 0) {
      const std::int64_t listed = ids[t] < spec_.per_layer_rows ? ids[t] : 0;
      const Vector table = row_of(Role::kPerLayerEmbedding, count_of(listed), own * num_layers);
      const Vector projected = product(Role::kPerLayerProjection, -1, x);
      for (std::size_t layer = 0; layer < num_layers; ++layer) {
        Vector part(projected.begin() + static_cast<std::ptrdiff_t>(layer * own),
                    projected.begin() + static_cast<std::ptrdiff_t>((layer + 1) * own));
        for (double& value : part)
          value /= std::sqrt(static_cast<double>(width));
        part = rms(part, &values(Role::kPerLayerNorm, -1));
        for (std::size_t i = 0; i < own; ++i)
          part[i] = (part[i] + table[layer * own + i] * std::sqrt(static_cast<double>(own))) / std::numbers::sqrt2;
        per_layer[layer].push_back(part);
      }
    }
    out.push_back(x);
  }
  return out;
}

Rows SpecReference::hidden(std::span<const std::int32_t> ids) const {
  std::vector<Rows> per_layer;
  Rows x = embed(ids, per_layer);
  std::vector<Kv> kv(spec_.layers.size());
  std::vector<Rows> streams = split_streams(x);
  for (std::int64_t index = 0; index < spec_.config.num_layers; ++index) {
    if (!streams.empty()) {
      run_streams(index, streams, per_layer[count_of(index)], kv);
      continue;
    }
    run_layer(index, x, kv);
    for (std::size_t t = 0; t < x.size(); ++t) {
      if (!per_layer.empty()) add_scaled(x[t], per_layer_branch(index, x[t], per_layer[count_of(index)][t]));
      if (!spec_.layers[count_of(index)].output_scale) continue;
      for (double& value : x[t])
        value *= values(Role::kLayerScale, index)[0];
    }
  }
  if (!streams.empty()) x = merged(streams);
  for (Vector& row : x)
    row = norm(spec_.final_norm, -1, row);
  return x;
}

Rows SpecReference::embeddings(std::span<const std::int32_t> ids) const {
  Rows rows = hidden(ids);
  for (Vector& row : rows) {
    for (std::size_t i = 0; i < spec_.dense_sizes.size(); ++i)
      row = product(i == 0 ? Role::kDense2 : Role::kDense3, -1, row);
  }
  return rows;
}

Vector SpecReference::per_layer_branch(std::int64_t index, const Vector& x, const Vector& own) const {
  Vector gate = product(Role::kInputGate, index, x);
  for (std::size_t i = 0; i < gate.size(); ++i)
    gate[i] = activated({.kind = Nonlinearity::kGelu}, gate[i], own[i]);
  return norm(Role::kInputNorm, index, product(Role::kInputProjection, index, gate));
}

Rows SpecReference::logits(std::span<const std::int32_t> ids) const {
  Rows out = hidden(ids);
  for (Vector& row : out) {
    row = product(spec_.config.tied_head ? Role::kTokenEmbedding : Role::kHead, -1, row);
    for (double& value : row) {
      value *= spec_.logit_scale;
      if (spec_.logit_softcap > 0.0) value = spec_.logit_softcap * std::tanh(value / spec_.logit_softcap);
    }
  }
  return out;
}

SpecReference::Vector SpecReference::labels(std::span<const std::int32_t> ids) const {
  const Rows rows = hidden(ids);
  Vector x = spec_.is_causal ? rows.back() : rows.front();
  if (spec_.scores_mean) {
    x.assign(x.size(), 0.0);
    for (const Vector& row : rows)
      add_scaled(x, row, 1.0 / static_cast<double>(rows.size()));
  }
  if (spec_.has_classifier_dense) {
    x = product(Role::kClassifier, -1, x);
    for (double& value : x)
      value = activated({.kind = spec_.classifier_activation}, value, 1.0);
    if (spec_.has_classifier_norm) x = norm(Role::kClassifierNorm, -1, x);
  }
  return product(Role::kClassifierOutput, -1, x);
}

void SpecReference::run_layer(std::int64_t index, Rows& x, std::vector<Kv>& kv) const {
  const LayerSpec& layer = spec_.layers[count_of(index)];
  const bool has_both = layer.feed_forward.kind == FeedForwardSpec::Kind::kBoth;
  const bool feeds = layer.feed_forward.kind != FeedForwardSpec::Kind::kNone;
  const Rows before = x;
  if (layer.mixer != Mixer::kNone) {
    Rows in;
    for (const Vector& row : x)
      in.push_back(norm(layer.mixer_norm, index, row));
    const Rows mixed = mix(index, in, kv);
    for (std::size_t t = 0; t < x.size(); ++t) {
      add_scaled(x[t], norm(layer.mixer_output_norm, index, mixed[t]), spec_.residual_scale);
      x[t] = norm(layer.mixer_sum_norm, index, x[t]);
      if (spec_.laurel_rank > 0) {
        add_scaled(x[t], in[t]);
        const Vector low = product(Role::kLaurelLeft, index, in[t]);
        add_scaled(x[t], norm(Role::kLaurelNorm, index, product(Role::kLaurelRight, index, low)));
        for (double& value : x[t])
          value /= std::numbers::sqrt2;
      }
      if (layer.mixer_sum_norm_2 == Role::kNoRole) continue;
      add_scaled(x[t], before[t]);
      x[t] = norm(layer.mixer_sum_norm_2, index, x[t]);
    }
  }
  for (std::size_t t = 0; feeds && t < x.size(); ++t) {
    const Vector& seen = layer.is_parallel ? before[t] : x[t];
    const Role role = layer.is_parallel && layer.ffn_norm == Role::kNoRole ? layer.mixer_norm : layer.ffn_norm;
    const Vector fed = feed_forward(index, has_both ? seen : norm(role, index, seen), before[t]);
    add_scaled(x[t], norm(layer.ffn_output_norm, index, fed), spec_.residual_scale);
    x[t] = norm(layer.ffn_sum_norm, index, x[t]);
  }
}

void SpecReference::norm_heads(const AttentionSpec& spec, WeightRole role, std::int64_t index, Vector& heads,
                               std::size_t count) const {
  if (spec.qk_norm == QkNorm::kNone && !spec.unit_qk_norm) return;
  if (spec.qk_norm == QkNorm::kFullWidth) {
    heads = rms(heads, &values(role, index));
    return;
  }
  const double* bias =
      spec.qk_norm != QkNorm::kNone && has(role, index, ".bias") ? values(role, index, ".bias").data() : nullptr;
  if (spec.qk_norm == QkNorm::kLayerFull) {
    heads = layer_norm(heads, values(role, index), bias);
    return;
  }
  const std::size_t dim = heads.size() / count;
  for (std::size_t head = 0; head < count; ++head) {
    const auto part = std::span(heads).subspan(head * dim, dim);
    Vector normed;
    if (spec.qk_norm == QkNorm::kLayerPerHead) {
      normed = layer_norm(part, std::span(values(role, index)).subspan(head * dim, dim),
                          bias == nullptr ? nullptr : bias + head * dim);
    } else {
      normed = rms(part, spec.qk_norm == QkNorm::kNone ? nullptr : &values(role, index));
    }
    std::ranges::copy(normed, part.begin());
  }
}

double SpecReference::temperature(const AttentionSpec& spec, std::size_t position) const {
  const double periods =
      std::floor((static_cast<double>(position) + spec.temperature_offset) / spec.temperature_length);
  return 1.0 + spec.temperature * std::log(1.0 + periods);
}

SpecReference::Projections SpecReference::project(const AttentionSpec& spec, std::int64_t index,
                                                  const Vector& x) const {
  const auto heads = count_of(spec.num_heads);
  const auto kv_heads = count_of(spec.num_kv_heads);
  const auto dim = count_of(spec.key_dim);
  const auto value_dim = count_of(spec.value_dim);
  Projections out;
  if (spec.fused_qkv) {
    out.query = product(Role::kQkv, index, x, 0, heads * dim);
    out.key = product(Role::kQkv, index, x, heads * dim, kv_heads * dim);
    out.value = product(Role::kQkv, index, x, (heads + kv_heads) * dim, kv_heads * value_dim);
  } else {
    out.query = product(Role::kQuery, index, x);
    if (spec.kv_source < 0) out.key = product(Role::kKey, index, x);
    if (spec.kv_source < 0) out.value = spec.value_is_key ? out.key : product(Role::kValue, index, x);
  }
  for (Vector* part : {&out.query, &out.key, &out.value}) {
    for (double& value : *part)
      value = spec.clamp > 0.0 ? std::clamp(value, -spec.clamp, spec.clamp) : value;
  }
  if (spec.gate == OutputGate::kInQuery) {
    const Vector both = std::move(out.query);
    out.query.clear();
    for (std::size_t i = 0; i < both.size(); ++i)
      (i / dim % 2 == 0 ? out.query : out.gate).push_back(both[i]);
  } else if (spec.gate != OutputGate::kNone) {
    out.gate = product(Role::kAttentionGate, index, x);
  }
  return out;
}

Rows SpecReference::attention(std::int64_t index, const Rows& in, std::vector<Kv>& kv) const {
  const AttentionSpec& spec = spec_.layers[count_of(index)].attention;
  const auto heads = count_of(spec.num_heads);
  const auto kv_heads = count_of(spec.num_kv_heads);
  const auto dim = count_of(spec.key_dim);
  const auto value_dim = count_of(spec.value_dim);
  Kv& own = kv[count_of(index)];
  Rows queries;
  Rows gates;
  for (std::size_t t = 0; t < in.size(); ++t) {
    auto [q, k, v, gate] = project(spec, index, in[t]);
    if (spec.gate != OutputGate::kNone) gates.push_back(gate);
    for (std::size_t head = 0; spec.value_norm && head < v.size() / value_dim; ++head) {
      const auto part = std::span(v).subspan(head * value_dim, value_dim);
      std::ranges::copy(rms(part, nullptr), part.begin());
    }
    const auto norm_both = [&] {
      norm_heads(spec, Role::kQueryNorm, index, q, heads);
      if (!k.empty()) norm_heads(spec, Role::kKeyNorm, index, k, kv_heads);
    };
    if (!spec.norm_after_rope) norm_both();
    rotate(q, dim, 0, spec.rope, t);
    rotate(k, dim, 0, spec.rope, t);
    if (spec.norm_after_rope) norm_both();
    for (double& value : q)
      value *= temperature(spec, t);
    queries.push_back(q);
    own.keys.push_back(k);
    own.values.push_back(v);
  }
  const Kv& seen = spec.kv_source < 0 ? own : kv[count_of(spec.kv_source)];
  Rows out;
  for (std::size_t t = 0; t < in.size(); ++t) {
    Vector y = attend(spec, index, queries[t], seen, t);
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] *= spec.value_scale;
      if (!gates.empty()) y[i] *= sigmoid(gates[t].at(i / (y.size() / gates[t].size())));
    }
    if (spec.output_norm) y = rms(y, &values(Role::kAttentionSubNorm, index));
    out.push_back(product(Role::kAttentionOutput, index, y));
  }
  return out;
}

Vector SpecReference::attend(const AttentionSpec& spec, std::int64_t index, const Vector& query, const Kv& kv,
                             std::size_t t) const {
  const auto dim = count_of(spec.key_dim);
  const auto value_dim = count_of(spec.value_dim);
  const auto group = count_of(spec.num_heads / spec.num_kv_heads);
  const auto at = static_cast<std::int64_t>(t);
  Vector out(count_of(spec.num_heads) * value_dim);
  for (std::size_t head = 0; head < count_of(spec.num_heads); ++head) {
    std::vector<std::pair<std::size_t, double>> scores;
    for (std::int64_t s = 0; s < std::ssize(kv.keys); ++s) {
      if (spec_.is_causal && s > at) break;
      if (spec.window > 0 && spec_.is_causal && at - s >= spec.window) continue;
      if (spec.window > 0 && !spec_.is_causal && std::abs(at - s) > spec.window / 2) continue;
      if (spec.chunk > 0 && s / spec.chunk != at / spec.chunk) continue;
      double score = 0.0;
      for (std::size_t i = 0; i < dim; ++i)
        score += query[head * dim + i] * kv.keys[count_of(s)][head / group * dim + i];
      score *= spec.scale;
      if (spec.softcap > 0.0) score = spec.softcap * std::tanh(score / spec.softcap);
      if (spec.alibi > 0.0)
        score -= alibi_slope(spec.alibi, spec.num_heads, static_cast<std::int64_t>(head)) *
                 static_cast<double>(std::abs(at - s));
      scores.emplace_back(count_of(s), score);
    }
    const double sink = spec.has_sinks ? values(Role::kSinks, index).at(head) : 0.0;
    double largest = spec.has_sinks ? sink : scores.front().second;
    for (const auto& [s, score] : scores)
      largest = std::max(largest, score);
    double sum = spec.has_sinks ? std::exp(sink - largest) : 0.0;
    for (const auto& [s, score] : scores)
      sum += std::exp(score - largest);
    for (const auto& [s, score] : scores) {
      for (std::size_t i = 0; i < value_dim; ++i)
        out[head * value_dim + i] += std::exp(score - largest) / sum * kv.values[s][head / group * value_dim + i];
    }
  }
  return out;
}

}  // namespace quire::test
