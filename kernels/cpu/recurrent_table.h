// RecurrentTable: the kernels of one ISA level for recurrent mixers, as plain function pointers. Immutable; any thread.
// Included by the ISA level files: no standard container, no function with external linkage. Invariant: the arithmetic
// of a token does not depend on the tokens that are advanced together with it.
#pragma once

#include <cstdint>

namespace quire {

inline constexpr std::int64_t kStateColumns = 32;  // columns of a state that lie side by side
inline constexpr std::int64_t kConvColumns = 256;  // columns of one piece of a convolution
inline constexpr std::int64_t kMaxTaps = 8;
inline constexpr std::int64_t kTokenTile = 16;  // tokens that one panel of a state is advanced by at a time

// A sequence's rows of `columns` columns, at most kConvColumns. Strides in floats; `before` and `after` may be null.
struct ConvPiece {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t taps = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  const float* before = nullptr;
  std::int64_t before_stride = 0;
  const float* after = nullptr;
  std::int64_t after_stride = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  const float* weights = nullptr;  // [taps], weight_stride from one to the next
  std::int64_t weight_stride = 0;
  const float* bias = nullptr;
  bool silu = false;
  bool fresh = false;        // the history is zeros
  float* history = nullptr;  // [taps - 1], history_stride from one to the next
  std::int64_t history_stride = 0;
};

// A token's update of a panel of a state S [key_dim][kStateColumns]. The delta rule: d = beta (v - S' k) with S' = S
// decayed; a state space: d = beta v. Then S = S' + k (x) d and out = S q + skip v.
struct StateToken {
  const float* k = nullptr;
  const float* q = nullptr;
  const float* decays = nullptr;   // [key_dim], decay per channel only
  const float* decayed = nullptr;  // [key_dim] decay times k, decay per channel only
  float decay = 1.0f;
  float beta = 0.0f;
  float skip = 0.0f;  // a state space only
  const float* v = nullptr;
  float* out = nullptr;
};

// A token's values that a selective scan shares among all channels of a panel.
struct ScanToken {
  const float* b = nullptr;   // [state_size]
  const float* c = nullptr;   // [state_size]
  const float* dt = nullptr;  // [columns] after softplus
  const float* x = nullptr;
  float* out = nullptr;
};

struct RecurrentTable {
  void (*short_conv)(const ConvPiece& piece);
  // Advance a panel of `columns` columns, at most kStateColumns, by up to kTokenTile tokens.
  void (*delta)(const StateToken* tokens, std::int64_t num_tokens, std::int64_t key_dim, std::int64_t columns,
                float* state);
  void (*delta_per_channel)(const StateToken* tokens, std::int64_t num_tokens, std::int64_t key_dim,
                            std::int64_t columns, float* state);
  void (*state_space)(const StateToken* tokens, std::int64_t num_tokens, std::int64_t key_dim, std::int64_t columns,
                      float* state);
  // a: [state_size], a_stride from one to the next; d: [columns].
  void (*scan)(const ScanToken* tokens, std::int64_t num_tokens, std::int64_t state_size, std::int64_t columns,
               const float* a, std::int64_t a_stride, const float* d, float* state);
  // out = softplus(x + bias)
  void (*softplus)(const float* x, const float* bias, std::int64_t count, float* out);
  // out = exp(x * factors), or exp(x * factor) where factors is null
  void (*exp_scaled)(const float* x, const float* factors, float factor, std::int64_t count, float* out);
  // out = x * factor / max(norm of x, eps)
  void (*unit_norm)(const float* x, float eps, float factor, std::int64_t count, float* out);
  void (*multiply)(const float* x, const float* y, std::int64_t count, float* out);
  // out = sigmoid(gate) * x; x null: sigmoid(gate)
  void (*sigmoid_gate)(const float* gate, const float* x, std::int64_t count, float* out);
};

}  // namespace quire
