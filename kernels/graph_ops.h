// GraphOps: the operations of mixers and feed-forwards beyond the plain decoder's, over plain views. The caller owns
// every view. Engine thread only.
// Invariant (batch invariance): as Backend's. A recurrence advances token by token in one order, whatever the chunk.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace quire {

struct MatrixView;
struct AttentionBatch;
struct ProductInput;
class KvStorage;
class Linear;

// What one sequence keeps of recurrent layers: `floats` for each slot. A slot is one sequence's.
class StateStorage {
 public:
  virtual ~StateStorage() = default;
  virtual std::int64_t num_slots() const = 0;
  virtual std::int64_t floats() const = 0;  // of one slot
  virtual void copy_slot(std::int32_t source, std::int32_t destination) = 0;
  virtual void read_slot(std::int32_t slot, std::span<float> out) const = 0;  // out: floats()
  virtual void write_slot(std::int32_t slot, std::span<const float> in) = 0;
};

enum class Nonlinearity : std::uint8_t {
  kNone,
  kSilu,
  kGelu,
  kRelu,
  kReluSquared,
  kSwigluOai,
  kXielu,
  kTanh,
  kSigmoid
};

struct ActivationArgs {
  Nonlinearity kind = Nonlinearity::kSilu;
  float limit = 0.0f;  // silu: the gate is at most this and the other factor within it, where it is not zero
  float alpha_p = 0.0f, alpha_n = 0.0f, beta = 0.0f, eps = 0.0f;  // kXielu
};

struct AttentionOptions {
  std::int64_t num_heads = 0;
  float scale = 1.0f;
  bool causal = true;
  std::int64_t window = 0;       // positions that a query sees, its own included; 0: all. Not causal: half to each side
  std::int64_t chunk = 0;        // a query sees positions of its own multiple of this only; 0: all
  float softcap = 0.0f;          // scores become softcap * tanh(score / softcap)
  const float* sinks = nullptr;  // [num_heads] one more score of each head's softmax, without a value
  float alibi = 0.0f;            // largest slope's exponent; 0: none
  bool value_in_key = false;     // V is the first out.cols / num_heads elements of K
};

// Routing of rows to experts, decided row by row; ties go to the lower index.
struct RouteOptions {
  enum class Gate : std::uint8_t { kSoftmax, kSigmoid, kSoftmaxOfChosen };
  Gate gate = Gate::kSoftmax;
  std::int64_t num_chosen = 0;
  std::int64_t num_groups = 1;
  std::int64_t num_groups_chosen = 1;
  bool normalise = false;
  float scale = 1.0f;
  const float* choice_bias = nullptr;   // [experts] added for the choice only
  const float* expert_scale = nullptr;  // [experts] multiplies the weight of each
};

// The state-space recurrence of Mamba-2 (arXiv 2405.21060).
struct MambaArgs {
  std::int64_t num_heads = 0, head_dim = 0, state_size = 0, num_groups = 0;
  const float* a = nullptr;        // [heads] negative
  const float* d = nullptr;        // [heads]
  const float* dt_bias = nullptr;  // [heads]
};

// The gated delta rule (arXiv 2412.06464). q, k: [rows, key_heads * key_dim]; v, out: [rows, value_heads * value_dim].
struct DeltaArgs {
  std::int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  bool grouped = false;            // the key head of value head h is h / (value_heads / key_heads), else h % key_heads
  bool per_channel = false;        // one decay for each element of the key, else one for each head
  float eps = 0.0f;                // of the L2 norm of q and k
  const float* a = nullptr;        // [value_heads] negative
  const float* dt_bias = nullptr;  // [value_heads], per channel [value_heads * key_dim]
};

// Where the rows of a step keep their state: slot of each sequence, and the offset of this layer's floats in it.
struct StateRef {
  StateStorage* storage = nullptr;
  std::span<const std::int32_t> slots;  // [num_seqs]
  std::int64_t offset = 0;
};

class GraphOps {
 public:
  virtual ~GraphOps() = default;

  virtual std::unique_ptr<StateStorage> allocate_states(std::int64_t num_slots, std::int64_t floats) = 0;

  // out[r] = (x[r] - mean) / deviation * weight + bias; bias may be null. x and out may be the same.
  virtual void layer_norm(MatrixView x, const float* weight, const float* bias, float eps, MatrixView out) = 0;
  // out[r] = f(gate[r]) * up[r], or f(gate[r]) where `up` has no data. out may be gate or up.
  virtual void activate(const ActivationArgs& args, MatrixView gate, MatrixView up, MatrixView out) = 0;
  virtual void copy(MatrixView x, MatrixView out) = 0;
  virtual void add(MatrixView x, float scale, MatrixView out) = 0;  // out += scale * x
  virtual void scale(MatrixView x, float factor) = 0;
  virtual void scale_columns(MatrixView x, const float* factors) = 0;
  // x[r] *= factors[r]
  virtual void scale_rows(MatrixView x, std::span<const float> factors) = 0;
  // x[r][j] *= gate[r][j / (x.cols / gate.cols)], each gate through `kind`.
  virtual void gate(Nonlinearity kind, MatrixView gate, MatrixView x) = 0;
  virtual void softcap(MatrixView x, float cap) = 0;

  virtual void attention(const KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                         const AttentionOptions& options, MatrixView out) = 0;

  // ids, weights: [rows * num_chosen], in the order of the choice.
  virtual void route(MatrixView logits, const RouteOptions& options, std::span<std::int32_t> ids,
                     std::span<float> weights) = 0;
  // out[i] = experts[ids[i]] x[i / rows_each]: rows grouped by expert. out: [ids.size(), out_features].
  virtual void expert_linear(std::span<const std::unique_ptr<Linear>> experts, std::span<const std::int32_t> ids,
                             std::int64_t rows_each, MatrixView x, MatrixView out) = 0;
  // out[r] = sum over j of weights[r * n + j] * x[r * n + j], in the order of j; n = x.rows / out.rows.
  virtual void combine(MatrixView x, std::span<const float> weights, MatrixView out) = 0;

  // Causal depthwise convolution over the rows of each sequence, in place: x[r][c] = bias[c] + sum over j of
  // kernel[c][j] * x[r - (taps - 1) + j][c]. State: the last taps - 1 rows.
  virtual void short_conv(const AttentionBatch& batch, const StateRef& state, const float* kernel, const float* bias,
                          std::int64_t taps, MatrixView x) = 0;
  // decay: [rows, value_heads or value_heads * key_dim] before softplus; beta: [rows, value_heads] before the sigmoid.
  // State: [value_heads][key_dim][value_dim].
  virtual void delta_rule(const AttentionBatch& batch, const StateRef& state, const DeltaArgs& args, MatrixView q,
                          MatrixView k, MatrixView v, MatrixView decay, MatrixView beta, MatrixView out) = 0;
  // x: [rows, heads * head_dim]; b, c: [rows, groups * state_size]; dt: [rows, heads].
  // State: [heads][head_dim][state_size].
  virtual void mamba2(const AttentionBatch& batch, const StateRef& state, const MambaArgs& args, MatrixView x,
                      MatrixView b, MatrixView c, MatrixView dt, MatrixView out) = 0;
};

}  // namespace quire
