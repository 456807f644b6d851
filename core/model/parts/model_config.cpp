#include "core/model/parts/model_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/result.h"

namespace quire {

namespace {

class Checker {
 public:
  explicit Checker(const std::string& where) : where_(where) {}

  void in_range(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) const {
    require(value >= low && value <= high, fmt::format("{} is {}, not between {} and {}", name, value, low, high));
  }
  void in_range(const char* name, double value, double low, double high) const {
    // The form of the comparison makes NaN fail.
    require(value >= low && value <= high, fmt::format("{} is {}, not between {} and {}", name, value, low, high));
  }
  void require(bool condition, const std::string& what) const {
    if (!condition) throw StartupError(fmt::format("{}: {}", where_, what));
  }

 private:
  const std::string& where_;
};

}  // namespace

void check_in_range(double value, const SamplingRange& range, const std::string& key, const std::string& where) {
  Checker(where).require(value >= range.low && value <= range.high,
                         fmt::format("the default '{}' is {}, not between {} and {}: correct it, or remove it from the "
                                     "file",
                                     key, value, range.low, range.high));
}

void check_rope(const RopeConfig& rope, std::int64_t head_dim, const std::string& where) {
  const Checker check(where);
  check.in_range("the number of rotated dimensions", rope.rotary_dim, 2, head_dim);
  check.require(rope.rotary_dim % 2 == 0, fmt::format("the number of rotated dimensions, {}, is odd", rope.rotary_dim));
  check.in_range("the RoPE base", rope.base, 1.0 + 1e-6, 1e15);
  check.in_range("the RoPE scaling factor", rope.factor, 1e-6, 1e6);
  check.in_range("the RoPE attention factor", rope.attention_factor, 1e-3, 1e3);
  if (rope.scaling == RopeScaling::kLlama3 || rope.scaling == RopeScaling::kYarn) {
    check.in_range("the RoPE scaling's original context length", rope.original_context, 1.0, 1e12);
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    check.in_range("the RoPE scaling's low_freq_factor", rope.low_freq_factor, 1e-6, 1e6);
    check.in_range("the RoPE scaling's high_freq_factor", rope.high_freq_factor, 1e-6, 1e6);
    check.require(rope.high_freq_factor >= rope.low_freq_factor,
                  "the RoPE scaling's high_freq_factor is below its low_freq_factor");
  }
  if (rope.scaling == RopeScaling::kYarn) {
    check.in_range("the RoPE scaling's beta_fast", rope.beta_fast, 1e-6, 1e6);
    check.in_range("the RoPE scaling's beta_slow", rope.beta_slow, 1e-6, 1e6);
  }
  if (!rope.frequency_divisors.empty()) {
    check.require(std::ssize(rope.frequency_divisors) == rope.rotary_dim / 2,
                  fmt::format("there are {} RoPE frequency factors for {} rotated dimensions",
                              rope.frequency_divisors.size(), rope.rotary_dim));
    for (const float divisor : rope.frequency_divisors)
      check.in_range("a RoPE frequency factor", divisor, 1e-6, 1e31);
  }
}

namespace {

double llama3_frequency(double frequency, const RopeConfig& rope) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < rope.original_context / rope.high_freq_factor) return frequency;
  if (wavelength > rope.original_context / rope.low_freq_factor) return frequency / rope.factor;
  const double kept =
      (rope.original_context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - kept) * frequency / rope.factor + kept * frequency;
}

// The (fractional) dimension pair that turns `rotations` times within the original context.
double yarn_dimension(double rotations, const RopeConfig& rope) {
  return static_cast<double>(rope.rotary_dim) * std::log(rope.original_context / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(rope.base));
}

void apply_yarn(std::vector<double>& inv_freq, const RopeConfig& rope) {
  double low = yarn_dimension(rope.beta_fast, rope);
  double high = yarn_dimension(rope.beta_slow, rope);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope.rotary_dim - 1));
  const double width = std::max(high - low, 0.001);
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / width, 0.0, 1.0);
    inv_freq[i] = inv_freq[i] / rope.factor * interpolated + inv_freq[i] * (1.0 - interpolated);
  }
}

}  // namespace

void check_sizes(const ModelConfig& config, const std::string& where) {
  const Checker check(where);
  check.in_range("the number of layers", config.num_layers, 1, 4096);
  check.in_range("the embedding length", config.hidden_size, 1, 1 << 20);
  check.in_range("the feed-forward length", config.ffn_size, 0, 1 << 22);
  check.in_range("the vocabulary size", config.vocab_size, 1, 1 << 24);
  check.in_range("the context length", config.max_context, 1, std::int64_t{1} << 30);
  check.in_range("the RMS norm's epsilon", config.rms_eps, 0.0, 1.0);
}

void check_config(const ModelConfig& config, const std::string& where) {
  const Checker check(where);
  check_sizes(config, where);
  check.in_range("the number of heads", config.num_heads, 1, 1 << 14);
  check.in_range("the number of key-value heads", config.num_kv_heads, 1, config.num_heads);
  check.require(config.num_heads % config.num_kv_heads == 0,
                fmt::format("{} heads cannot share {} key-value heads", config.num_heads, config.num_kv_heads));
  check.in_range("the head dimension", config.head_dim, 1, 1 << 12);
  check_rope(config.rope, config.head_dim, where);
}

RopeFrequencies rope_frequencies(const RopeConfig& rope) {
  RopeFrequencies out;
  out.inv_freq.resize(static_cast<std::size_t>(rope.rotary_dim / 2));
  for (std::size_t i = 0; i < out.inv_freq.size(); ++i) {
    out.inv_freq[i] = std::pow(rope.base, -2.0 * static_cast<double>(i) / static_cast<double>(rope.rotary_dim));
    if (!rope.frequency_divisors.empty()) out.inv_freq[i] /= static_cast<double>(rope.frequency_divisors[i]);
  }
  switch (rope.scaling) {
    case RopeScaling::kNone: break;
    case RopeScaling::kLinear:
      for (double& frequency : out.inv_freq)
        frequency /= rope.factor;
      break;
    case RopeScaling::kLlama3:
      for (double& frequency : out.inv_freq)
        frequency = llama3_frequency(frequency, rope);
      break;
    case RopeScaling::kYarn: apply_yarn(out.inv_freq, rope); break;
  }
  out.scale = static_cast<float>(rope.attention_factor);
  return out;
}

double yarn_attention_factor(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

}  // namespace quire
