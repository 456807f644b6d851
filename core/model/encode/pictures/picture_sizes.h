// The rules by which families choose sizes of pictures and grids of tiles. Pure functions; any thread.
// Sources: the processors of Hugging Face's transformers and llama.cpp's mtmd, whose rules these are.
#pragma once

#include <cstdint>
#include <span>

#include "core/model/encode/pictures/picture_spec.h"

namespace quire {

// Whether limits of pixels change sizes by this rule.
constexpr bool follows_pixels(Sizing sizing) {
  return sizing == Sizing::kSmart || sizing == Sizing::kBudget || sizing == Sizing::kLongestEdge ||
         sizing == Sizing::kPatchLimit || sizing == Sizing::kLargeTiles;
}

struct PixelLimits {
  std::int64_t least = 0;
  std::int64_t most = 0;
};

// No side below `align`.
PictureSize enlarged_size(PictureSize picture, std::int32_t align, ShortSide rule);
// Sides rounded to multiples of `align`, area within the limits.
PictureSize smart_size(PictureSize picture, std::int32_t align, PixelLimits limits, bool as_llama_cpp);
// The largest size within the limit, sides rounded down.
PictureSize budget_size(PictureSize picture, std::int32_t align, std::int64_t most);
// No side above `edge`; sides rounded up.
PictureSize longest_edge_size(PictureSize picture, std::int32_t align, std::int32_t edge, std::int64_t most);
// At most `most` pixels; not rounded.
PictureSize limited_size(PictureSize picture, std::int32_t patch, std::int64_t most);
// Sides rounded up; a line within the limit.
PictureSize padded_size(PictureSize picture, std::int32_t align, std::int64_t most);
// The candidate that shows most of the picture and, of those, wastes least.
PictureSize best_candidate(PictureSize picture, std::span<const PictureSize> candidates, bool as_llama_cpp);
// The candidate of the closest aspect ratio; among equals the larger one if the picture fills half of it.
PictureSize closest_candidate(PictureSize picture, std::span<const PictureSize> candidates, std::int32_t tile);
// The candidate that needs the least enlarging or, where none holds the picture, the least shrinking.
PictureSize snuggest_candidate(PictureSize picture, std::span<const PictureSize> candidates);

// Slices of MiniCPM-V: a grid, the size of all slices together and that of the overview.
struct SliceSizes {
  PictureSize grid;  // empty: no slices
  PictureSize all;
  PictureSize overview;
};
SliceSizes slice_sizes(PictureSize picture, std::int32_t image_size, std::int32_t align, bool as_llama_cpp);

// The picture at its own aspect within a frame: sides rounded up or down.
PictureSize fitted(PictureSize picture, PictureSize frame, bool rounds_up, bool as_llama_cpp);

}  // namespace quire
