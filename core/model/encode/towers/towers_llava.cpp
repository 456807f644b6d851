// LLaVA 1.5 and 1.6, and Granite Vision in the same files: a CLIP or SigLIP tower and two matrices.
#include <algorithm>

#include "core/model/encode/towers/families.h"

namespace quire {

namespace {

using namespace tower;

void read_pinpoints_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  const std::vector<std::int64_t> sides = file.integers("image_grid_pinpoints");
  if (sides.size() % 2 != 0) file.fail("the key 'clip.vision.image_grid_pinpoints' must hold pairs of numbers");
  PictureSpec& picture = spec.picture;
  for (std::size_t i = 0; i < sides.size(); i += 2) {
    if (sides[i] < 1 || sides[i + 1] < 1 || sides[i] > (1 << 16) || sides[i + 1] > (1 << 16) ||
        sides[i] % picture.image_size != 0 || sides[i + 1] % picture.image_size != 0)
      file.fail("the key 'clip.vision.image_grid_pinpoints' must hold multiples of clip.vision.image_size");
    picture.candidates.push_back({static_cast<std::int32_t>(sides[i]), static_cast<std::int32_t>(sides[i + 1])});
  }
  if (picture.candidates.empty()) return;
  picture.sizing = Sizing::kBestTiles;
  if (form == PictureForm::kLlamaCpp) {
    picture.whole = {ResizeFilter::kCornerBilinear, ResizeFit::kStretch};
    picture.tiles = {ResizeFilter::kFourPointsCubic, ResizeFit::kPadCentred};
    return;
  }
  picture.whole = {ResizeFilter::kPillowBicubic, ResizeFit::kStretch};
  picture.tiles = {ResizeFilter::kPillowBicubic, ResizeFit::kPadCentred};
  picture.overview_first = picture.always_tiles = true;
  picture.joins_tiles = file.has("v.image_newline");
  if (picture.joins_tiles) spec.break_row = "v.image_newline";
}

void read_llava_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  const bool as_llama = form == PictureForm::kLlamaCpp;
  const std::vector<std::int64_t> features = file.integers("feature_layer");
  spec.family = "LLaVA";
  spec.picture.whole = as_llama ? ResizeSpec{ResizeFilter::kFourPointsCubic, ResizeFit::kPadCentred, {122, 116, 104}}
                                : ResizeSpec{ResizeFilter::kPillowBicubic, ResizeFit::kCover};
  read_pinpoints_tower(file, form, spec);
  spec.positions = LearnedPositions::kByRow;
  if (file.has("v.class_embd")) {
    // llama.cpp puts the class token last, takes its positions for those of a first one and leaves out the first patch.
    spec.class_token = as_llama ? ClassToken::kLast : ClassToken::kFirst;
    spec.skipped_rows = as_llama ? 1 : 0;
  }
  if (file.has("v.pre_ln.weight")) spec.before_blocks = {layer_norm("v.pre_ln")};
  if (features.empty()) {
    spec.num_blocks = std::max<std::int64_t>(spec.num_blocks - 1, 0);  // features of the last but one
  } else {
    spec.family = "Granite Vision";
    const std::int64_t last = *std::ranges::max_element(features);
    if (last > spec.num_blocks || *std::ranges::min_element(features) < 0)
      file.fail("the key 'clip.vision.feature_layer' names a block that the tower lacks");
    spec.num_blocks = last;
    for (std::int64_t block = 0; block < last; ++block) {
      if (std::ranges::count(features, block) > 0) spec.kept_before.push_back(block);
    }
    if (file.has("v.post_ln.weight")) spec.last_norm = {layer_norm("v.post_ln")};
  }
  spec.projector_steps = {linear("mm.0"), activate(as_llama ? Nonlinearity::kGelu : Nonlinearity::kGeluOfError),
                          linear("mm.2")};
}

constexpr TowerFamily kLlavaTowers[] = {{"mlp", read_llava_tower}};

}  // namespace

std::span<const TowerFamily> llava_towers() {
  return kLlavaTowers;
}

}  // namespace quire
