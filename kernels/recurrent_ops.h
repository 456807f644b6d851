// RecurrentOps: the mixers that keep a fixed state per sequence, as batch-shaped operations over plain views, and the
// StateStorage that holds those states. The caller owns every view. Engine thread only.
// Invariants: a recurrence advances token by token in one order, so cutting a prompt into chunks changes no bit; a
// sequence whose first row has position 0 starts from zeros, whatever its state held before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace quire {

struct AttentionBatch;
struct MatrixView;

inline constexpr std::int64_t kStatePanel = 32;  // columns of a matrix state that lie side by side

struct StateLayout {
  std::int64_t num_states = 0;  // sequences that have one at the same time
  std::int64_t floats = 0;      // size for one sequence, over all recurrent layers
};

// Floats of the last taps - 1 rows of a convolution over `channels`.
inline std::int64_t conv_state_floats(std::int64_t channels, std::int64_t taps) {
  return (channels * (taps - 1) + kStatePanel - 1) / kStatePanel * kStatePanel;
}
// Floats of one key_dim x value_dim matrix per head.
inline std::int64_t matrix_state_floats(std::int64_t heads, std::int64_t key_dim, std::int64_t value_dim) {
  return heads * key_dim * ((value_dim + kStatePanel - 1) / kStatePanel * kStatePanel);
}

// The states of sequences. Their inner layout is the backend's own.
class StateStorage {
 public:
  virtual ~StateStorage() = default;
  virtual const StateLayout& layout() const = 0;
  virtual std::size_t state_bytes() const = 0;  // bytes of one sequence's state
  virtual void copy_state(std::int32_t source, std::int32_t destination) = 0;
  virtual void read_state(std::int32_t state, std::span<std::byte> out) const = 0;  // out: state_bytes()
  virtual void write_state(std::int32_t state, std::span<const std::byte> in) = 0;
};

// An operation's floats in a state: AttentionBatch::state_ids names the sequences' states.
struct StatePart {
  StateStorage* storage = nullptr;
  std::int64_t offset = 0;  // floats from the state's first
};

struct ConvArgs {
  std::int64_t taps = 0;           // 2 to 8
  const float* weights = nullptr;  // [taps][channels], the newest row's last
  const float* bias = nullptr;     // [channels] or null
  bool silu = false;
};

// The gated delta rule (arXiv 2412.06464), with one decay per head or, as in Kimi Delta Attention (arXiv 2510.26692),
// per channel of the key.
struct DeltaArgs {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  bool grouped = false;            // the key head of value head h is h / (value_heads / key_heads), else h % key_heads
  bool per_channel = false;        // decay inputs are [value_heads * key_dim], else [value_heads]
  float eps = 0.0f;                // least norm that q and k are divided by
  const float* a = nullptr;        // [value_heads], negative
  const float* dt_bias = nullptr;  // same width as the decay inputs
};

// Mamba-2's recurrence (arXiv 2405.21060).
struct StateSpaceArgs {
  std::int64_t num_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t state_size = 0;
  std::int64_t num_groups = 0;     // heads of a group share B and C
  const float* a = nullptr;        // [heads], negative
  const float* d = nullptr;        // [heads]
  const float* dt_bias = nullptr;  // [heads]
};

// Mamba's recurrence (arXiv 2312.00752), which has a decay for each channel and element of its state.
struct SelectiveScanArgs {
  std::int64_t state_size = 0;
  const float* a = nullptr;        // [state_size][channels], negative
  const float* d = nullptr;        // [channels]
  const float* dt_bias = nullptr;  // [channels]
};

// Normalises each `group` of a row's columns by its root mean square and gates it.
struct GatedNormArgs {
  enum class Order : std::uint8_t { kNormThenGate, kGateThenNorm, kGateOnly };
  Order order = Order::kNormThenGate;
  bool sigmoid = false;           // the gate goes through a sigmoid, else SiLU; with kNormThenGate only
  std::int64_t group = 0;         // columns
  bool shared_weight = false;     // weight is [group], else [cols]
  const float* weight = nullptr;  // null with kGateOnly
  float eps = 0.0f;
};

class RecurrentOps {
 public:
  virtual ~RecurrentOps() = default;

  // Rows of the largest matrix states that it advances.
  virtual std::int64_t most_key_dim() const { return std::int64_t{1} << 12; }
  virtual std::unique_ptr<StateStorage> allocate_states(const StateLayout& layout) = 0;

  // Causal depthwise convolution over the rows of each sequence: out[r] = bias + sum over j of weights[j] *
  // (x * before)[r - taps + 1 + j], through SiLU where `silu`, times after[r]. `before` and `after` without data: 1.
  // x and out may be the same. State: conv_state_floats(channels, taps).
  virtual void short_conv(const AttentionBatch& batch, const StatePart& state, const ConvArgs& args, MatrixView x,
                          MatrixView before, MatrixView after, MatrixView out) = 0;
  // q, k: [rows, key_heads * key_dim], v, out: [rows, value_heads * value_dim]; q and k are normalised here and q
  // divided by sqrt(key_dim). With g = a softplus(decay + dt_bias) and b = sigmoid(beta): S <- exp(g) S;
  // S <- S + k (x) b (v - S k); out = S q. State: matrix_state_floats(value_heads, key_dim, value_dim).
  virtual void delta_rule(const AttentionBatch& batch, const StatePart& state, const DeltaArgs& args, MatrixView q,
                          MatrixView k, MatrixView v, MatrixView decay, MatrixView beta, MatrixView out) = 0;
  // x, out: [rows, heads * head_dim]; b, c: [rows, groups * state_size]; dt: [rows, heads]. With t = softplus(dt +
  // dt_bias): S <- exp(t a) S + b (x) t x; out = S c + d x. State: matrix_state_floats(heads, state_size, head_dim).
  virtual void state_space(const AttentionBatch& batch, const StatePart& state, const StateSpaceArgs& args,
                           MatrixView x, MatrixView b, MatrixView c, MatrixView dt, MatrixView out) = 0;
  // x, dt, out: [rows, channels]; b, c: [rows, state_size]. State: matrix_state_floats(1, state_size, channels).
  virtual void selective_scan(const AttentionBatch& batch, const StatePart& state, const SelectiveScanArgs& args,
                              MatrixView x, MatrixView b, MatrixView c, MatrixView dt, MatrixView out) = 0;
  // Works in place. `gate` has the shape of x.
  virtual void gated_norm(const GatedNormArgs& args, MatrixView gate, MatrixView x) = 0;
};

}  // namespace quire
