// GraphOps: the operations of mixers and feed-forwards beyond the plain decoder's, over plain views. The caller owns
// every view. Engine thread only.
// Invariant (batch invariance): as Backend's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/activation.h"

namespace quire {

struct MatrixView;
struct AttentionBatch;
struct ProductInput;
class KvStorage;
class Linear;

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
  // kSparseMixer (arXiv 2409.12136): the softmax of each chosen expert among those whose logit is near its own and that
  // were not chosen before.
  enum class Gate : std::uint8_t { kSoftmax, kSigmoid, kSoftmaxOfChosen, kSparseMixer };
  Gate gate = Gate::kSoftmax;
  std::int64_t num_chosen = 0;
  std::int64_t num_groups = 1;
  std::int64_t num_groups_chosen = 1;
  bool normalise = false;
  float scale = 1.0f;
  float mixer_share = 0.0f;  // kSparseMixer: a logit is near within this share of the larger of the two magnitudes
  const float* choice_bias = nullptr;   // [experts] added for the choice only
  const float* expert_scale = nullptr;  // [experts] multiplies the weight of each
};

// The experts that rows take: arrays in the backend's memory.
struct ExpertChoices {
  std::int64_t num_rows = 0;
  std::int64_t num_chosen = 0;        // experts per row
  const std::int32_t* ids = nullptr;  // [num_rows * num_chosen], in the order of the choice
  const float* weights = nullptr;     // [num_rows * num_chosen]; null: each is 1

  std::int64_t count() const { return num_rows * num_chosen; }
};

// A low-rank change of a product (LoRA, arXiv 2106.09685): its outputs from first_output on gain (x down^T) up^T.
struct LowRank {
  std::unique_ptr<Linear> down;   // [rank, inputs]
  std::unique_ptr<Linear> up;     // [outputs, rank], times the change's scale
  std::int64_t first_output = 0;  // index among the product's outputs
};

// Low-rank additions to the products of experts for some rows, by expert; an empty list adds nothing.
struct ExpertChange {
  std::span<const std::vector<LowRank>> gate_up;
  std::span<const std::vector<LowRank>> down;
};

// Feed-forwards of which each row takes some.
struct ExpertArgs {
  std::span<const std::unique_ptr<Linear>> gate_up;  // by expert; `gated`: gate outputs, then up's
  std::span<const std::unique_ptr<Linear>> down;
  bool gated = true;
  ActivationArgs activation;
  std::span<const ExpertChange> changes = {};
  std::span<const std::int32_t> row_changes = {};  // [rows of x] which of the changes it has; -1: none
  float* low_rank = nullptr;                       // room for low_rank_stride floats of each choice
  std::int64_t low_rank_stride = 0;                // at least the largest rank of the changes
};

class GraphOps {
 public:
  virtual ~GraphOps() = default;

  // out[r] = (x[r] - mean) / deviation * weight + bias; bias may be null. x and out may be the same.
  virtual void layer_norm(MatrixView x, const float* weight, const float* bias, float eps, MatrixView out) = 0;
  // out[r] = f(gate[r]) * up[r], or f(gate[r]) where `up` has no data. out may be gate or up.
  virtual void activate(const ActivationArgs& args, MatrixView gate, MatrixView up, MatrixView out) = 0;
  virtual void copy(MatrixView x, MatrixView out) = 0;
  virtual void add(MatrixView x, float scale, MatrixView out) = 0;  // out += scale * x
  virtual void scale(MatrixView x, float factor) = 0;
  virtual void scale(MatrixView x, const float* factor) = 0;  // `factor` is one number in the backend's memory
  virtual void scale_columns(MatrixView x, const float* factors) = 0;
  // x[r] *= factors[r]
  virtual void scale_rows(MatrixView x, std::span<const float> factors) = 0;
  // x[r][j] *= gate[r][j / (x.cols / gate.cols)], each gate through `kind`.
  virtual void gate(Nonlinearity kind, MatrixView gate, MatrixView x) = 0;
  virtual void softcap(MatrixView x, float cap) = 0;
  virtual void clamp(MatrixView x, float low, float high) = 0;  // either may be infinite

  virtual void attention(const KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                         const AttentionOptions& options, MatrixView out) = 0;

  // The choices lie in memory of the backend that its next route() overwrites.
  virtual ExpertChoices route(MatrixView logits, const RouteOptions& options) = 0;
  // x[i] *= the weight of choice i; x has a row for each choice.
  virtual void scale_by_weights(const ExpertChoices& choices, MatrixView x) = 0;
  // out[r] = sum over j of weights[r * n + j] * down(f(gate_up x[r])) with the products of expert ids[r * n + j], in
  // the order of j; n = num_chosen. gate_up, results: room for a row of each choice.
  virtual void experts(const ExpertArgs& args, const ExpertChoices& choices, MatrixView x, MatrixView gate_up,
                       MatrixView results, MatrixView out) = 0;

  // Residual streams (AltUp, arXiv 2301.13310), side by side in a row.
  // out[r][i] = x[r][i] + sum over k of factors[r][i * n + k] * x[r][k], in the order of k; n streams.
  virtual void mix_streams(MatrixView factors, MatrixView x, MatrixView out) = 0;
  // streams[r][i] += (1 + factors[r][i]) * x[r]
  virtual void add_to_streams(MatrixView factors, MatrixView x, MatrixView streams) = 0;
  // x[r] *= |like[r]| / |x[r]|, Euclidean lengths; a row of zeros stays.
  virtual void match_length(MatrixView like, MatrixView x) = 0;
  // x[r] becomes its excess over the mean plus `deviations` standard deviations, or zero. `of_sample`: the squares are
  // divided by one less than their number.
  virtual void keep_excess(MatrixView x, float deviations, bool of_sample) = 0;

  // out[:, h] = heads[h] x[:, h]: head h begins at column h * (cols / heads) of x and of out and may be narrower.
  virtual void head_linear(std::span<const std::unique_ptr<Linear>> heads, MatrixView x, MatrixView out) = 0;
};

}  // namespace quire
