#include "tests/unit/model/reference/reference_model.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <numbers>

namespace quire::test {

namespace {

double to_bf16(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  const std::uint32_t lowest_kept = (bits >> 16) & 1U;
  return static_cast<double>(std::bit_cast<float>((bits + 0x7FFFU + lowest_kept) & 0xFFFF0000U));
}

}  // namespace

ReferenceModel::ReferenceModel(const ModelConfig& config, const GgufFile& weights, Rounding rounding)
    : config_(config), rounding_(rounding) {
  for (const GgufTensor& tensor : weights.tensors()) {
    Matrix& to = matrices_[std::string(tensor.name)];
    to.cols = tensor.shape.at(0);
    to.rows = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
    to.type = tensor.type.value();
    std::vector<float> decoded(static_cast<std::size_t>(to.rows * to.cols));
    dequantize(to.type, tensor.data.data(), to.rows * to.cols, decoded.data());
    to.values.assign(decoded.begin(), decoded.end());
  }
}

ReferenceModel::Vector ReferenceModel::rounded(const Vector& x, const Row& row, Rounding rounding) const {
  const std::vector<float>& seen = row.recording.at(row.product).at(row.position);
  REQUIRE(seen.size() == x.size());
  double scale = 0.0;
  double difference = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    scale = std::max(scale, std::fabs(x[i]));
    difference = std::max(difference, std::fabs(x[i] - static_cast<double>(seen[i])));
  }
  REQUIRE(difference <= 1e-4 * scale);
  Vector out;
  if (rounding == Rounding::kBf16) {
    for (const float value : seen)
      out.push_back(to_bf16(static_cast<double>(value)));
    return out;
  }
  for (std::size_t begin = 0; begin < seen.size(); begin += 32) {
    float largest = 0.0F;
    for (std::size_t i = begin; i < begin + 32; ++i)
      largest = std::max(largest, std::fabs(seen[i]));
    // Single precision, because the documentation specifies how a value near an edge is rounded.
    const float inverse = largest > 0.0F ? 127.0F / largest : 0.0F;
    const auto step = static_cast<double>(largest / 127.0F);
    for (std::size_t i = begin; i < begin + 32; ++i) {
      out.push_back(step * static_cast<double>(std::nearbyint(seen[i] * inverse)));
    }
  }
  return out;
}

Rounding ReferenceModel::rounding_before(const Matrix& weights) const {
  const bool is_quantised = dtype_info(weights.type).block_size > 1;
  switch (rounding_) {
    case Rounding::kNone: return Rounding::kNone;
    case Rounding::kInt8Activations: return is_quantised ? Rounding::kInt8Activations : Rounding::kNone;
    case Rounding::kInt8OrBf16:
      if (weights.type == DType::kBF16) return Rounding::kBf16;
      return is_quantised ? Rounding::kInt8Activations : Rounding::kNone;
    case Rounding::kInt8OrHalves:
      if (weights.type == DType::kF32) return Rounding::kNone;
      return is_quantised && weights.type != DType::kF8 ? Rounding::kInt8Activations : Rounding::kBf16;
    case Rounding::kBf16: return weights.type == DType::kF32 ? Rounding::kNone : Rounding::kBf16;
  }
  return Rounding::kNone;
}

ReferenceModel::Vector ReferenceModel::multiply(const std::string& stem, const Vector& x, const Row& row) const {
  const Matrix& weights = matrix(stem + ".weight");
  const Rounding rounding = rounding_before(weights);
  const Vector input = rounding == Rounding::kNone ? x : rounded(x, row, rounding);
  const bool round_weights = rounding == Rounding::kBf16;
  Vector out;
  for (std::int64_t r = 0; r < weights.rows; ++r) {
    double sum = 0.0;
    for (std::int64_t col = 0; col < weights.cols; ++col) {
      const double w = weights.values[static_cast<std::size_t>(r * weights.cols + col)];
      sum += (round_weights ? to_bf16(w) : w) * input[static_cast<std::size_t>(col)];
    }
    out.push_back(sum);
  }
  if (const auto bias = matrices_.find(stem + ".bias"); bias != matrices_.end()) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] += bias->second.values[i];
  }
  return out;
}

ReferenceModel::Vector ReferenceModel::rms_norm(const Vector& x, const std::string& name, std::size_t begin,
                                                std::size_t count) const {
  double squares = 0.0;
  for (std::size_t i = begin; i < begin + count; ++i)
    squares += x[i] * x[i];
  const double root = std::sqrt(squares / static_cast<double>(count) + config_.rms_eps);
  Vector out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(x[begin + i] / root * matrix(name).values[i]);
  return out;
}

void ReferenceModel::norm_heads(Vector& x, const std::string& name) const {
  const auto head_dim = static_cast<std::size_t>(config_.head_dim);
  for (std::size_t begin = 0; begin < x.size(); begin += head_dim) {
    std::ranges::copy(rms_norm(x, name, begin, head_dim), x.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

// The rotation of a pair at a position, from each scheme's own description.
double ReferenceModel::angle(std::size_t position, std::size_t pair) const {
  const RopeConfig& rope = config_.rope;
  const auto dim = static_cast<double>(rope.rotary_dim);
  const auto m = static_cast<double>(position);
  const double theta = 1.0 / std::pow(rope.base, 2.0 * static_cast<double>(pair) / dim);
  switch (rope.scaling) {
    case RopeScaling::kNone: return m * theta;
    case RopeScaling::kLinear: return m / rope.factor * theta;
    case RopeScaling::kLlama3: {
      // Turns within the original context decide: many are kept, few are slowed down, smoothly between.
      const double turns = rope.original_context * theta / (2.0 * std::numbers::pi);
      const double kept =
          std::clamp((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
      return m * theta * (kept + (1.0 - kept) / rope.factor);
    }
    case RopeScaling::kYarn: {
      const auto dimension_of = [&](double turns) {
        return dim / 2.0 * std::log(rope.original_context / (2.0 * std::numbers::pi * turns)) / std::log(rope.base);
      };
      const double fast = std::max(std::floor(dimension_of(rope.beta_fast)), 0.0);
      const double slow = std::min(std::ceil(dimension_of(rope.beta_slow)), dim - 1.0);
      const double extrapolated = 1.0 - std::clamp((static_cast<double>(pair) - fast) / (slow - fast), 0.0, 1.0);
      return m * theta * (extrapolated + (1.0 - extrapolated) / rope.factor);
    }
  }
  return 0.0;
}

void ReferenceModel::rotate(Vector& heads, std::size_t position) const {
  const auto head_dim = static_cast<std::size_t>(config_.head_dim);
  const auto half = static_cast<std::size_t>(config_.rope.rotary_dim / 2);
  const bool yarn = config_.rope.scaling == RopeScaling::kYarn;
  const double magnitude = yarn ? 1.0 + 0.1 * std::log(config_.rope.factor) : 1.0;
  for (std::size_t head = 0; head < heads.size(); head += head_dim) {
    for (std::size_t pair = 0; pair < half; ++pair) {
      const bool interleaved = config_.rope.style == RopeStyle::kInterleaved;
      double& a = heads[head + (interleaved ? 2 * pair : pair)];
      double& b = heads[head + (interleaved ? 2 * pair + 1 : pair + half)];
      const double cosine = magnitude * std::cos(angle(position, pair));
      const double sine = magnitude * std::sin(angle(position, pair));
      const double rotated = a * cosine - b * sine;
      b = a * sine + b * cosine;
      a = rotated;
    }
  }
}

ReferenceModel::Vector ReferenceModel::attend(const Vector& query, const Cache& cache) const {
  const auto head_dim = static_cast<std::size_t>(config_.head_dim);
  const auto group = static_cast<std::size_t>(config_.num_heads / config_.num_kv_heads);
  Vector out(query.size());
  for (std::size_t head = 0; head < static_cast<std::size_t>(config_.num_heads); ++head) {
    const std::size_t kv_begin = head / group * head_dim;
    Vector scores;
    for (const Vector& key : cache.keys) {
      double dot = 0.0;
      for (std::size_t i = 0; i < head_dim; ++i)
        dot += query[head * head_dim + i] * key[kv_begin + i];
      scores.push_back(dot / std::sqrt(static_cast<double>(head_dim)));
    }
    const double largest = *std::ranges::max_element(scores);
    double sum = 0.0;
    for (double& score : scores)
      sum += score = std::exp(score - largest);
    for (std::size_t t = 0; t < scores.size(); ++t) {
      for (std::size_t i = 0; i < head_dim; ++i) {
        out[head * head_dim + i] += scores[t] / sum * cache.values[t][kv_begin + i];
      }
    }
  }
  return out;
}

ReferenceModel::Vector ReferenceModel::layer(std::int64_t index, Vector x, Row& row, Cache& cache) const {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const auto add = [&](const Vector& y) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] += y[i];
  };
  Vector h = rms_norm(x, prefix + "attn_norm.weight", 0, x.size());
  Vector q = multiply(prefix + "attn_q", h, row);
  Vector k = multiply(prefix + "attn_k", h, row);
  if (config_.has_qk_norm) {
    norm_heads(q, prefix + "attn_q_norm.weight");
    norm_heads(k, prefix + "attn_k_norm.weight");
  }
  rotate(q, row.position);
  rotate(k, row.position);
  cache.keys.push_back(k);
  cache.values.push_back(multiply(prefix + "attn_v", h, row));
  ++row.product;
  add(multiply(prefix + "attn_output", attend(q, cache), row));
  ++row.product;

  h = rms_norm(x, prefix + "ffn_norm.weight", 0, x.size());
  Vector gate = multiply(prefix + "ffn_gate", h, row);
  const Vector up = multiply(prefix + "ffn_up", h, row);
  ++row.product;
  for (std::size_t i = 0; i < gate.size(); ++i)
    gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
  add(multiply(prefix + "ffn_down", gate, row));
  ++row.product;
  return x;
}

std::vector<std::vector<double>> ReferenceModel::logits(std::span<const std::int32_t> ids,
                                                        const Recording& recording) const {
  std::vector<Cache> caches(static_cast<std::size_t>(config_.num_layers));
  std::vector<Vector> out;
  const Matrix& embedding = matrix("token_embd.weight");
  for (std::size_t position = 0; position < ids.size(); ++position) {
    Row row{.position = position, .product = 0, .recording = recording};
    const auto values = embedding.values.begin() + ids[position] * embedding.cols;
    Vector x(values, values + embedding.cols);
    for (std::int64_t index = 0; index < config_.num_layers; ++index) {
      x = layer(index, std::move(x), row, caches[static_cast<std::size_t>(index)]);
    }
    x = rms_norm(x, "output_norm.weight", 0, x.size());
    out.push_back(multiply(config_.tied_head ? "token_embd" : "output", x, row));
  }
  return out;
}

}  // namespace quire::test
