// PictureSpec: how a family cuts and scales pictures, and the texts around their rows, as data. Plain values; any
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace quire {

struct PictureSize {
  std::int32_t width = 0;
  std::int32_t height = 0;
  bool operator==(const PictureSize&) const = default;
  std::int64_t area() const { return std::int64_t{width} * height; }
};

enum class ResizeFilter : std::uint8_t {
  kPillowBilinear,  // Pillow's antialiased filters in fixed point
  kPillowBicubic,
  kPillowLanczos,
  kRoundedBicubic,   // llama.cpp: Pillow's bicubic, coefficients rounded twice
  kCornerBilinear,   // llama.cpp: four neighbours, corners aligned, truncated
  kFourPointsCubic,  // llama.cpp: a cubic through four points, not antialiased
};

enum class ResizeFit : std::uint8_t {
  kStretch,
  kPadCentred,  // the aspect is kept, sides rounded up; bars on both sides
  kPadCorner,   // the aspect is kept, sides rounded down; bars at the right and below
  kPlace,       // the picture keeps its size; bars at the right and below
  kCover,       // the aspect is kept and the middle cut out
};

struct ResizeSpec {
  ResizeFilter filter = ResizeFilter::kPillowBicubic;
  ResizeFit fit = ResizeFit::kStretch;
  std::array<std::uint8_t, 3> bars = {0, 0, 0};
};

// The rule that gives sizes of pictures and tiles.
enum class Sizing : std::uint8_t {
  kFixed,         // image_size squared
  kSmart,         // sides rounded to `align`, area within the limits
  kBudget,        // scaled to fill max_pixels, sides rounded down to `align`
  kLongestEdge,   // at most longest_edge, sides rounded up to `align`
  kPatchLimit,    // shrunk to max_pixels at patches, sides padded to `align`
  kBestTiles,     // tiles of the candidate that shows most of the picture
  kClosestTiles,  // tiles of the candidate of the closest aspect ratio
  kLlama4Tiles,   // tiles of the candidate that needs the least enlarging
  kEdgeTiles,     // tiles of a picture whose longest side is longest_edge
  kSlices,        // slices of the picture's own aspect
  kLargeTiles,    // kSmart, beside tiles of tile_size where the picture is large
};

// A side shorter than `align` before sizes are rounded (kSmart).
enum class ShortSide : std::uint8_t {
  kKept,
  kEnlarged,       // to `align`, the other one in proportion and rounded to the nearest
  kEnlargedBelow,  // the same, rounded down
};

struct PictureSpec {
  Sizing sizing = Sizing::kFixed;
  ShortSide short_side = ShortSide::kKept;
  bool as_llama_cpp = false;  // sizes in its arithmetic
  std::int32_t patch_size = 0;
  std::int32_t align = 0;
  std::int32_t image_size = 0;  // side of a tile and of the overview
  std::int64_t min_pixels = 0;
  std::int64_t max_pixels = 0;
  std::int32_t longest_edge = 0;
  std::int32_t tile_size = 512;           // kLargeTiles
  std::vector<PictureSize> candidates{};  // total sizes; kClosestTiles, kLargeTiles: counted in tiles
  ResizeSpec whole;                       // pictures without tiles, overviews
  ResizeSpec tiles;
  bool overview_first = false;
  bool always_tiles = false;           // also pictures no larger than image_size
  bool overview_of_many_only = false;  // a lone tile has no overview
  bool joins_tiles = false;            // tiles form one raster without bars, its rows ended by the break row
  std::array<float, 3> mean = {};
  std::array<float, 3> deviation = {1.0F, 1.0F, 1.0F};
  bool is_signed = false;  // values from -1 to 1 before the mean
};

// Texts of control tokens around and between rows.
struct PictureTexts {
  std::string begin{};
  std::string overview_begin{};
  std::string overview_end{};
  std::string tile_begin{};    // "{row}" and "{column}" count from one
  std::string tile_between{};  // between tiles of a row
  std::string tile_end{};
  std::string row_end{};    // after each row of tiles but the last
  std::string tiles_end{};  // after the last tile
  std::string end{};
};

}  // namespace quire
