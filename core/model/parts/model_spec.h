// ModelSpec: an architecture as data: the computation of its layers, read from a file's metadata by its family. Each
// layer's parts (parts.h) say what follows from their numbers, and run them. Immutable after construction; any
// thread. Invariant: after check_spec every number is in a range that sizes can be computed from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model/parts/model_config.h"
#include "core/model/parts/weight_roles.h"
#include "kernels/graph_ops.h"
#include "kernels/recurrent_ops.h"

namespace quire {

enum class NormKind : std::uint8_t { kRms, kRmsWithBias, kLayer };
enum class QkNorm : std::uint8_t {
  kNone,
  kPerHead,       // RMS norm of each head, one weight for all heads
  kFullWidth,     // RMS norm of all heads together
  kLayerPerHead,  // layer norm of each head with weights of its own
  kLayerFull,     // layer norm of all heads together
};
enum class OutputGate : std::uint8_t {
  kNone,
  kInQuery,  // the query's product yields [query | gate] for each head; sigmoid
  kPerHead,  // a separate product, a gate for each head; sigmoid
  kFull,     // a separate product, a gate for each element; sigmoid
};

struct AttentionSpec {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t window = 0;  // 0: none
  std::int64_t chunk = 0;
  double scale = 0.0;
  double softcap = 0.0;
  double alibi = 0.0;
  double value_scale = 1.0;  // factor of the output
  double clamp = 0.0;        // bound of queries, keys and values; 0: none
  int rope = -1;             // index into ModelSpec::ropes; -1: no rotation
  QkNorm qk_norm = QkNorm::kNone;
  bool norm_after_rope = false;
  bool unit_qk_norm = false;  // the norm has no weight
  bool value_norm = false;    // RMS norm of V without weight
  bool value_is_key = false;  // V has no product: it is K before norm and rope
  bool has_sinks = false;
  bool fused_qkv = false;
  bool output_norm = false;     // RMS norm before the output product
  std::int64_t kv_source = -1;  // the layer whose K and V replace own ones
  double temperature = 0.0;     // queries times 1 + temperature * ln(1 + floor(position / temperature_length))
  double temperature_length = 1.0;
  double temperature_offset = 0.0;  // added to the position
  OutputGate gate = OutputGate::kNone;
};

// Multi-head latent attention (arXiv 2405.04434), absorbed: the cache keeps a latent row for each token.
struct LatentSpec {
  std::int64_t query_rank = 0;  // 0: queries are not compressed
  std::int64_t kv_rank = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t value_dim = 0;
  bool merged_kv = false;  // a matrix [k | v] for each head instead of two
};

// RMS norms of the inputs of Mamba's step and state projections.
enum class StepNorm : std::uint8_t { kNone, kUnit, kWeighted };

struct RecurrentSpec {
  std::int64_t taps = 0;
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t inner_size = 0;  // Mamba, Mamba-2, short convolution
  std::int64_t num_groups = 0;  // Mamba-2; lightning attention: groups of the output's norm
  bool grouped_heads = false;   // delta net: see DeltaArgs::grouped
  bool fused_ba = false;        // delta net: beta and alpha in one matrix by key head
  bool has_norm = true;         // Mamba-2
  std::int64_t step_rank = 0;   // Mamba
  StepNorm step_norm = StepNorm::kNone;
  double step_eps = 0.0;
  bool silu_inputs = false;   // lightning attention: SiLU of queries, keys and values
  std::vector<float> decays;  // lightning attention: logarithm of each head's decay
};

struct FeedForwardSpec {
  enum class Kind : std::uint8_t { kNone, kDense, kExperts, kBoth };  // kBoth: side by side, each with norms
  Kind kind = Kind::kDense;
  std::int64_t size = 0;
  bool is_gated = true;
  bool fused_gate = false;  // the matrix `up` holds the gate first
  ActivationArgs activation;
  bool sub_norm = false;  // RMS norm before the product down
  // Only gate values above their mean by this many standard deviations count.
  std::optional<double> sparsity;
  bool sparsity_of_sample = false;  // the sample's deviation is used

  std::int64_t num_experts = 0;
  std::int64_t expert_size = 0;
  std::int64_t shared_size = 0;  // 0: no shared expert
  std::int64_t latent_size = 0;  // experts see a projection of this width; 0: the whole width
  bool experts_gated = true;
  bool fused_experts = false;
  bool has_choice_bias = false;
  bool shared_gate = false;    // the shared expert's output times sigmoid of a product
  bool routes_early = false;   // the router sees the layer's input, before the mixer
  bool weight_input = false;   // the routing weight multiplies the expert's input
  double experts_scale = 1.0;  // factor of the summed output of all experts
  RouteOptions route;
  ActivationArgs expert_activation;
  ActivationArgs shared_activation;
};

enum class Mixer : std::uint8_t {
  kNone,
  kAttention,
  kLatent,
  kDeltaNet,
  kKimiDelta,
  kShortConv,
  kMamba,
  kMamba2,
  kAttentionAndMamba2,
  kLightning
};

struct LayerSpec {
  Mixer mixer = Mixer::kAttention;
  AttentionSpec attention;
  LatentSpec latent;
  RecurrentSpec recurrent;
  FeedForwardSpec feed_forward;
  // Norms by role; kNoRole: none.
  WeightRole mixer_norm = WeightRole::kAttentionNorm;
  WeightRole mixer_output_norm = WeightRole::kNoRole;  // norm of the branch before it is added
  WeightRole ffn_norm = WeightRole::kFfnNorm;
  WeightRole ffn_output_norm = WeightRole::kNoRole;
  WeightRole mixer_sum_norm = WeightRole::kNoRole;    // norm after the branch was added
  WeightRole mixer_sum_norm_2 = WeightRole::kNoRole;  // norm of the sum with the layer's input added once more
  WeightRole ffn_sum_norm = WeightRole::kNoRole;
  bool is_parallel = false;  // both branches see the layer's input
  bool output_scale = false;
};

struct ModelSpec {
  ModelConfig config;  // numbers common to all layers
  std::vector<LayerSpec> layers;
  std::vector<RopeConfig> ropes;
  NormKind norm = NormKind::kRms;
  bool is_causal = true;
  WeightRole final_norm = WeightRole::kOutputNorm;  // kNoRole: none
  WeightRole embedding_norm = WeightRole::kNoRole;
  bool has_positions = false;  // learned
  std::int64_t num_token_types = 0;
  bool scales_media = false;  // embedding_scale multiplies rows of media, too
  double embedding_scale = 1.0;
  double residual_scale = 1.0;
  double logit_scale = 1.0;
  double logit_softcap = 0.0;
  std::int64_t per_layer_size = 0;  // width of each layer's own embedding of the token
  std::int64_t per_layer_rows = 0;  // rows of that embedding's table; later tokens use the first row
  std::int64_t num_streams = 1;     // residual streams; layers compute a single one (AltUp, arXiv 2301.13310)
  std::int64_t laurel_rank = 0;     // rank of the branch beside attention (LAuReL, arXiv 2411.07501); 0: none
  // Widths of an embedding model's products after the last norm, at most two; the last is the hidden size.
  std::vector<std::int64_t> dense_sizes;
  bool has_head = true;         // false: hidden states only
  std::int64_t num_labels = 0;  // scores of a classifier over a row
  bool has_classifier_dense = false;
  bool has_classifier_norm = false;
  Nonlinearity classifier_activation = Nonlinearity::kTanh;  // after its dense product
  bool scores_mean = false;          // the classifier sees the mean of all rows instead of a single row
  double delta_eps = 0.0;            // epsilon of the delta nets' L2 norm
  bool ignore_unknown_keys = false;  // in adapters of this model
  // The block after the layers that predicts the token after next (MTP), if present and wanted; it keeps its K and V as
  // an additional layer, and its hidden state in the recurrent state.
  std::optional<LayerSpec> next_tokens;

  // Index config.num_layers is the block.
  const LayerSpec& layer(std::int64_t index) const {
    return index < config.num_layers ? layers.at(static_cast<std::size_t>(index)) : next_tokens.value();
  }
  std::int64_t num_blocks() const { return config.num_layers + (next_tokens ? 1 : 0); }
};

class TensorTable;
// Reads the widths of the matrices that are present.
void read_dense_sizes(const TensorTable& tensors, ModelSpec& spec);

// The plain decoder of the llama family.
ModelSpec plain_spec(const ModelConfig& config);

// Throws StartupError, one line that begins with `where`.
void check_spec(const ModelSpec& spec, const std::string& where);

// Floats of a layer's recurrent state, and their begin among those of all layers.
struct StatePlace {
  std::int64_t offset = 0;
  std::int64_t conv_floats = 0;
  std::int64_t floats = 0;  // floats after those of the convolution
};
// A place for each layer, then for the block that predicts further tokens.
std::vector<StatePlace> state_places(const ModelSpec& spec);
std::int64_t state_floats(const ModelSpec& spec);
KvLayout kv_layout_of(const ModelSpec& spec);
// Whether all layers use the same layer's K and V in turn: a sequence is then computed whole, layer by layer.
bool keeps_one_layer(const ModelSpec& spec);

// Numbers of a row's position: three if frequencies turn by time, height and width (M-RoPE).
std::int64_t positions_per_row(const ModelSpec& spec);

// By layer: number of latest tokens whose K and V are kept for all layers that read them; 0: all tokens, or none.
std::vector<std::int64_t> kept_windows(const ModelSpec& spec);
// No window if every layer's window covers the context, or if there are recurrent layers, whose states cover all
// tokens.
KvSplit kv_split_of(const ModelSpec& spec);
// In the order of each group's first layer.
std::vector<KvGroupSpec> kv_groups_of(const ModelSpec& spec);

}  // namespace quire
