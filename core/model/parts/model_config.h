// ModelConfig: the numbers of a transformer that are the same for every layer, in any file format. Immutable after
// construction; any thread.
// Invariant: after check_config every number is in a range that sizes can be computed from without overflow.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/sampling_ranges.h"
#include "kernels/backend.h"

namespace quire {

enum class RopeScaling : std::uint8_t {
  kNone,
  kLinear,  // positions divided by `factor` (kaiokendev; "Extending context window ... via positional interpolation")
  kLlama3,  // long wavelengths divided by `factor`, short ones kept, a ramp between (Llama 3.1)
  kYarn,    // arXiv 2309.00071, "NTK-by-parts" with an attention factor
};

struct RopeConfig {
  RopeStyle style = RopeStyle::kHalf;
  std::int64_t rotary_dim = 0;  // the first elements of each head that are rotated
  double base = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double original_context = 0.0;          // kLlama3, kYarn: tokens seen before the extension
  double low_freq_factor = 1.0;           // kLlama3
  double high_freq_factor = 4.0;          // kLlama3
  double beta_fast = 32.0;                // kYarn
  double beta_slow = 1.0;                 // kYarn
  bool truncate = true;                   // kYarn: the ramp's ends are rounded outwards to whole dimensions
  double attention_factor = 1.0;          // multiplies cos and sin
  std::vector<float> frequency_divisors;  // [rotary_dim / 2] or empty: GGUF's rope_freqs.weight
  // [rotary_dim / 2] or empty: the number of a position that rotates each frequency, 0 to 2 (M-RoPE, arXiv 2409.12191)
  std::vector<std::uint8_t> axes;
};

struct ModelConfig {
  std::string architecture;  // GGUF's name
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t ffn_size = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_context = 0;
  double rms_eps = 0.0;
  bool has_qk_norm = false;  // RMS norm of every query and key head before RoPE
  bool tied_head = false;    // logits by the embedding table
  RopeConfig rope;
};

// Wishes for reading a file.
struct SpecWishes {
  // Longest sequence that will be computed, in tokens, if shorter than the file's context; 0: the file's
  // context.
  std::int64_t served_context = 0;
  bool next_tokens = false;          // reads the block that predicts the token after next, if present
  bool may_lack_head = false;        // the files beside it say that the model gives embeddings
  bool ignore_unknown_keys = false;  // a warning in place of a refusal
};

// Throws StartupError if a default is outside a request's range.
void check_in_range(double value, const SamplingRange& range, const std::string& key, const std::string& where);

// Throws StartupError, one line that begins with `where` and names the invalid number.
void check_config(const ModelConfig& config, const std::string& where);
// Steps of check_config(): the numbers without heads, and a rotation of heads of `head_dim`.
void check_sizes(const ModelConfig& config, const std::string& where);
void check_rope(const RopeConfig& rope, std::int64_t head_dim, const std::string& where);

// The rotation of dimension pair i is position * inv_freq[i]; cos and sin are multiplied by `scale`.
struct RopeFrequencies {
  std::vector<double> inv_freq;  // [rotary_dim / 2]
  float scale = 1.0F;
};
RopeFrequencies rope_frequencies(const RopeConfig& rope);

// YaRN's recommended attention factor for an extension by `factor`: 0.1 * weight * ln(factor) + 1 (the paper's
// section 3.4).
double yarn_attention_factor(double factor, double weight = 1.0);

}  // namespace quire
