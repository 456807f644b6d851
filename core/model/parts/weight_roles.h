// WeightRole: a kind of weight. The part that has it gives its names in files (Part::roles) and its shape in a layer
// (Part::list_weights), which drives reading, packing, counting, synthesising and inspecting. Immutable facts; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct ModelSpec;

enum class WeightRole : std::uint8_t {
  // Model.
  kTokenEmbedding,
  kPositions,
  kTokenTypes,
  kEmbeddingNorm,
  kOutputNorm,
  kLfmOutputNorm,
  kEncoderOutputNorm,
  kHead,
  kClassifier,
  kClassifierNorm,
  kClassifierOutput,
  kPerLayerEmbedding,
  kPerLayerProjection,
  kPerLayerNorm,
  kDense2,
  kDense3,
  kStreamIn,
  kStreamOut,
  // Norms of a layer.
  kAttentionNorm,
  kAttentionNorm2,
  kPostAttentionNorm,
  kFfnNorm,
  kPostFfnNorm,
  kPostFfnNorm1,
  kPreFfnNorm2,
  kPostFfnNorm2,
  kAttentionOutputNorm,
  kLayerOutputNorm,
  kAttentionSubNorm,
  kFfnSubNorm,
  // Attention.
  kQuery,
  kKey,
  kValue,
  kQkv,
  kAttentionOutput,
  kQueryNorm,
  kKeyNorm,
  kSinks,
  kAttentionGate,
  kQueryA,
  kQueryANorm,
  kQueryB,
  kKvA,
  kKvANorm,
  kKeyB,
  kValueB,
  kKvB,
  // Feed-forward.
  kGate,
  kUp,
  kDown,
  kRouter,
  kRouterScale,
  kChoiceBias,
  kGateExperts,
  kUpExperts,
  kGateUpExperts,
  kDownExperts,
  kDownExpertsScale,
  kExpertsBias,
  kGateShared,
  kUpShared,
  kDownShared,
  kSharedGate,
  kLatentDown,
  kLatentUp,
  // Recurrent layers.
  kSsmIn,
  kSsmConv,
  kSsmConvQ,
  kSsmConvK,
  kSsmConvV,
  kSsmX,
  kSsmStep,
  kSsmStepNorm,
  kSsmBNorm,
  kSsmCNorm,
  kSsmDt,
  kSsmA,
  kSsmD,
  kSsmNorm,
  kSsmOut,
  kSsmAlpha,
  kSsmBeta,
  kSsmBa,
  kSsmFA,
  kSsmFB,
  kSsmGA,
  kSsmGB,
  kConvIn,
  kConv,
  kConvOut,
  // Per-layer embeddings.
  kInputGate,
  kInputProjection,
  kInputNorm,
  kLayerScale,
  // Residual streams.
  kStreamRouter,
  kStreamRouterNorm,
  kStreamPrediction,
  kStreamCorrection,
  kStreamScale,
  kLaurelLeft,
  kLaurelRight,
  kLaurelNorm,
  // Block that predicts the token after next.
  kNextInput,
  kNextTokenNorm,
  kNextHiddenNorm,
  kNextOutputNorm,
  kNoRole
};
inline constexpr int kNumWeightRoles = static_cast<int>(WeightRole::kNoRole);

struct RoleInfo {
  std::string_view gguf;  // without "blk.N."
  std::string_view hf;    // without the layer's prefix; empty: a family's own table has it
  std::string_view suffix = ".weight";
};
struct RoleName {
  WeightRole role = WeightRole::kNoRole;
  RoleInfo names;
};
const RoleInfo& role_info(WeightRole role);
// "blk.3.attn_q.weight"; layer < 0: a weight of the model.
std::string gguf_name(WeightRole role, std::int64_t layer);

// Form in which a weight is kept.
enum class WeightForm : std::uint8_t {
  kVector,   // decoded to f32, with its bias if it has one
  kRows,     // looked up by row, such as an embedding
  kProduct,  // packed; stacked with the others of its product
  kExperts,  // [experts][rows][cols]: packed for each expert; stacked likewise
  kPairs,    // a matrix of the rows [first | second] for each expert, split into the experts of two products
};
// Usual values of a vector: near 1, around 0, or negative.
enum class WeightValues : std::uint8_t { kFactors, kOffsets, kDecays };

struct WeightNeed {
  WeightRole role = WeightRole::kNoRole;
  WeightForm form = WeightForm::kVector;
  WeightRole product = WeightRole::kNoRole;  // name of the product: the role of its first matrix
  std::int64_t rows = 1;                     // rows of an expert
  std::int64_t cols = 0;
  std::int64_t num_experts = 0;
  bool is_optional = false;
  std::int64_t bias_size = 0;  // size of a vector's bias; 0: the vector's
  bool has_bias = false;       // files have a bias beside this vector
  std::int64_t taps = 0;       // a vector stored as [channels][taps], transposed to [taps][channels]
  std::int64_t gate_rows = 0;  // heads come as [gate_rows | gate_rows]; packing puts all first halves first
  WeightRole second_product = WeightRole::kNoRole;  // kPairs: name of the second rows' product
  std::int64_t first_rows = 0;                      // kPairs: number of first rows, which are transposed
  std::vector<float> constants{};                   // values of a vector that is not in files
  bool has_own_scales = false;                      // the experts' scales in files are a weight of their own

  // How published files have it; synthetic models follow.
  WeightValues values = WeightValues::kFactors;
  bool is_sensitive = false;  // kept finer in some layers
  bool is_exact = false;      // never quantised
  float gain = 1.0F;          // deviation, relative to others of the same number of columns
};

// In the order of files. layer -1: the model's weights; index after the last layer: the block that predicts further
// tokens.
std::vector<WeightNeed> weight_needs(const ModelSpec& spec, std::int64_t layer);

}  // namespace quire
