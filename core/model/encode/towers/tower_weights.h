// TowerWeights: the weights of a tower and its projector, packed for one backend. Immutable after loading; engine
// thread.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "core/model/encode/towers/mmproj_file.h"
#include "core/model/encode/towers/tower_spec.h"
#include "kernels/backend.h"

namespace quire {

struct TowerNorm {
  TowerNormKind kind = TowerNormKind::kLayer;
  float eps = 0.0F;
  std::unique_ptr<Buffer> weight{};  // null: there is no such norm
  std::unique_ptr<Buffer> bias{};

  bool is_there() const { return weight != nullptr; }
};

// A matrix whose inputs and outputs some files clamp.
struct TowerProduct {
  struct Range {
    float least = -std::numeric_limits<float>::infinity();
    float most = std::numeric_limits<float>::infinity();
    bool is_open() const { return *this == Range(); }
    bool operator==(const Range&) const = default;
  };
  std::unique_ptr<Linear> linear;
  Range input;
  Range output;  // before the bias, which is added after the clamp where both are there
  std::unique_ptr<Buffer> late_bias;

  std::int64_t inputs() const { return linear->in_features(); }
  std::int64_t outputs() const { return linear->out_features(); }
};

struct TowerStepWeights {
  TowerStep step;
  TowerNorm norm;
  TowerProduct product;  // kLinear; kGated: the gate
  TowerProduct up;
  TowerProduct down;
  std::unique_ptr<Buffer> offset;  // kStandardise
  std::unique_ptr<Buffer> factors;
};
using TowerSteps = std::vector<TowerStepWeights>;

struct TowerBlock {
  TowerNorm attention_norm;
  std::vector<TowerProduct> qkv;  // a single product for all three, or three
  TowerNorm query_norm;           // over heads, or over all of them at once
  TowerNorm key_norm;
  bool norms_whole_width = false;
  TowerProduct attention_out;
  TowerNorm attention_post_norm;
  std::unique_ptr<Buffer> attention_scale;  // a factor for each feature
  TowerNorm ffn_norm;
  std::vector<TowerProduct> up;  // the gate before it, where there is one
  TowerProduct down;
  TowerNorm ffn_post_norm;
  std::unique_ptr<Buffer> ffn_scale;
};

// A table of learned positions, decoded.
struct PositionTable {
  std::int64_t rows = 0;  // rows of the grid, where it has two dimensions
  std::int64_t columns = 0;
  std::vector<float> values;  // [rows][columns][width]
};

// Cross attention of learned queries over the tower's rows (MiniCPM-V).
struct ResamplerWeights {
  TowerProduct kv;
  TowerNorm kv_norm;
  TowerNorm query_norm;
  TowerProduct query;
  TowerProduct key;
  TowerProduct value;
  TowerProduct out;
  std::vector<float> queries;  // [num_queries][width]
  std::int64_t width = 0;
  std::int64_t num_heads = 0;
};

// The merger within MiniCPM-V 4.6's tower: attention in squares of four patches, which then become one row.
struct VitMergerWeights {
  TowerBlock attention;  // without a feed-forward
  TowerNorm norm;
  TowerProduct up;
  TowerProduct down;
};

struct TowerWeights {
  TowerSpec spec;
  TowerProduct patches;
  TowerSteps before_patches;
  TowerSteps after_patches;
  TowerSteps before_blocks;
  PositionTable positions;
  std::vector<float> class_row;
  std::vector<TowerBlock> blocks;
  TowerSteps last_norm;
  TowerSteps projector;
  std::vector<TowerSteps> branches;
  std::vector<float> break_row;
  std::unique_ptr<ResamplerWeights> resampler;
  std::unique_ptr<VitMergerWeights> merger;
  std::unique_ptr<Buffer> ones;  // width of the widest norm without weights
  std::size_t bytes = 0;         // size of packed matrices
};

// Takes every tensor that the spec names. Throws StartupError naming a tensor that is missing, unused or of another
// shape.
std::unique_ptr<TowerWeights> load_tower(MmprojFile& file, TowerSpec spec, Backend& backend);

}  // namespace quire
