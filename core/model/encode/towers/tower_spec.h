// TowerSpec: a tower and its projector as data. One file of a family makes it from the keys of an mmproj file; the
// loader takes the tensors that it names, and TowerRun computes it. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model/encode/pictures/picture_spec.h"
#include "kernels/backend.h"

namespace quire {

enum class TowerNormKind : std::uint8_t { kLayer, kRms };

// Operation on rows. Weights are names of tensors without ".weight".
struct TowerStep {
  enum class Kind : std::uint8_t {
    kNorm,         // an empty weight: ones
    kMerge,        // `count` neighbouring rows become one
    kMean,         // mean of `count` neighbouring rows
    kLinear,       // `by_channel`: inputs in the order [channel][row of a merge]
    kActivate,     // `activation`
    kGated,        // down(f(gate x) * up x): weight, up, down
    kScale,        // by `factor`
    kStandardise,  // (x - weight) * up, where the file has them
  };
  Kind kind = Kind::kNorm;
  std::string weight{};
  std::string up{};
  std::string down{};
  TowerNormKind norm = TowerNormKind::kLayer;
  std::optional<double> eps{};  // absent: the tower's
  std::int64_t count = 1;
  std::int64_t by_channel = 1;  // rows of the merge; 1: neighbours' channels side by side
  bool in_double = false;       // sums of a norm
  bool transposed = false;      // the file has [inputs][outputs]
  bool is_optional = false;     // left out where the file has no such tensor
  float factor = 1.0F;
  Nonlinearity activation = Nonlinearity::kGelu;
};

// Rotation of heads: ranges of a head turned by angles of the patch's place.
struct RopeSpec {
  struct Angle {
    bool by_column = false;
    double frequency = 0.0;
  };
  struct Part {
    std::int64_t offset = 0;  // first element within a head
    RopeStyle style = RopeStyle::kHalf;
    std::vector<Angle> angles{};  // by pair
  };
  std::vector<Part> parts{};
  std::int32_t first_place = 0;  // number of the first row and column; a class token's place is 0
};

enum class LearnedPositions : std::uint8_t {
  kNone,
  kByRow,        // a row of the table for each patch, the class token included
  kAligned,      // the table's grid resized: bilinear, corners aligned
  kAntialiased,  // bilinear, antialiased
  kHalfPixels,   // bilinear, between the two nearest
  kCubic,        // bicubic, -0.75
  kAxes,         // a table for columns and one for rows, added
  kBuckets,      // the cell of a fixed grid that the patch lies in
};

enum class ClassToken : std::uint8_t {
  kNone,
  kFirst,  // has the first learned position
  kLast,   // has the last learned position
};

// Rows computed beside the tower's last ones.
struct TowerBranch {
  std::int64_t after_block = 0;
  std::vector<TowerStep> steps{};
};

struct TowerSpec {
  std::string family;     // its name in the models page
  std::string projector;  // its name in the file
  std::string where;      // the file, for messages
  PictureSpec picture;
  PictureTexts texts;
  bool has_grid_positions = false;  // M-RoPE
  bool is_bidirectional = false;    // rows see each other in the text model

  std::int64_t width = 0;
  std::int64_t num_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn_size = 0;
  std::int64_t num_blocks = 0;  // number of blocks that are run
  std::int64_t patch_size = 0;  // patch size of the tower
  std::int64_t text_width = 0;
  double eps = 0.0;

  // Rows are ordered by cells: a cell is a square of cells[i] by cells[i] cells of the next smaller size, down to
  // patches.
  std::vector<std::int64_t> cells{};
  std::vector<TowerStep> before_patches{};  // on pixels, before the patch embedding
  std::vector<TowerStep> after_patches{};
  LearnedPositions positions = LearnedPositions::kNone;
  std::int64_t position_buckets = 0;
  std::vector<TowerStep> before_blocks{};
  ClassToken class_token = ClassToken::kNone;
  std::int64_t skipped_rows = 0;  // first rows that the projector does not see; the class token is dropped if it is 0

  TowerNormKind norm = TowerNormKind::kLayer;
  Nonlinearity activation = Nonlinearity::kGelu;
  RopeSpec rope{};
  float attention_scale = 0.0F;
  bool norms_values = false;           // RMS norm of V without weights
  std::int64_t window_cells = 0;       // side of attention windows in merged cells; 0: none
  std::int64_t window_pattern = 0;     // block i sees all where i + 1 is a multiple of it
  std::int64_t vit_merger_after = -1;  // block that the merger of MiniCPM-V 4.6 follows

  std::vector<std::int64_t> kept_before{};  // blocks whose input is kept beside the last rows
  std::vector<TowerStep> last_norm{};       // applied to the last rows before kept ones join
  std::vector<TowerStep> projector_steps{};
  std::vector<TowerBranch> branches{};  // columns of a row behind the projector's
  std::int64_t num_queries = 0;         // rows of a resampler; 0: the steps alone
  std::string break_row{};              // tensor of the row after each row of cells, or that ends rows of a raster
  bool breaks_rows = false;             // between rows of cells of each picture
  bool columns_first = false;           // rows are given column by column

  // Rows of patches that become one row for the text model.
  std::int64_t merge() const;
  // Floats of a row: the embedding, then an addition for each branch.
  std::int64_t row_width() const { return text_width * (std::ssize(branches) + 1); }
};

}  // namespace quire
