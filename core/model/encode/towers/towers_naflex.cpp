// LFM2-VL and Phi-4 vision: SigLIP2 towers of any grid of patches.
#include "core/model/encode/towers/families.h"

namespace quire {

namespace {

using namespace tower;

void read_lfm2_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  constexpr std::int64_t kLeastTokens = 64;
  constexpr std::int64_t kMostTokens = 256;
  constexpr std::int32_t kLeastTiles = 2;
  constexpr std::int32_t kMostTiles = 10;
  const bool as_llama = form == PictureForm::kLlamaCpp;
  const std::int64_t side = merge_side(file, "projector.scale_factor", 2);
  spec.family = "LFM2-VL";
  PictureSpec& picture = spec.picture;
  picture.sizing = Sizing::kLargeTiles;
  picture.align = static_cast<std::int32_t>(spec.patch_size * side);
  const std::int64_t cell = std::int64_t{picture.align} * picture.align;
  picture.min_pixels = kLeastTokens * cell;
  picture.max_pixels = kMostTokens * cell;
  if (picture.tile_size % picture.align != 0) file.fail("tiles of 512 pixels are no whole number of rows");
  for (std::int32_t x = 1; x <= kMostTiles; ++x) {
    for (std::int32_t y = 1; y <= kMostTiles; ++y) {
      if (x * y >= kLeastTiles && x * y <= kMostTiles) picture.candidates.push_back({x, y});
    }
  }
  if (as_llama) {
    picture.whole = {ResizeFilter::kCornerBilinear, ResizeFit::kStretch};
    picture.tiles = {ResizeFilter::kCornerBilinear, ResizeFit::kPadCentred};
  } else {
    picture.whole = picture.tiles = {ResizeFilter::kPillowBilinear, ResizeFit::kStretch};
  }
  spec.texts = {.begin = "<|image_start|>",
                .tile_begin = "<|img_row_{row}_col_{column}|>",
                .tiles_end = "<|img_thumbnail|>",
                .end = "<|image_end|>"};
  spec.cells = {side};
  spec.positions = LearnedPositions::kAntialiased;
  const Nonlinearity gelu = as_llama ? Nonlinearity::kGelu : Nonlinearity::kGeluOfError;
  spec.projector_steps = {layer_norm("v.post_ln"), merge(side * side), if_present(layer_norm("mm.input_norm", 1e-5)),
                          linear("mm.1"),          activate(gelu),     linear("mm.2")};
}

void read_phi4_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  const bool as_llama = form == PictureForm::kLlamaCpp;
  spec.family = "Phi-4 vision";
  PictureSpec& picture = spec.picture;
  picture.sizing = Sizing::kSmart;
  picture.align = static_cast<std::int32_t>(spec.patch_size);
  picture.min_pixels = file.required_integer("image_min_pixels");
  picture.max_pixels = file.required_integer("image_max_pixels");
  picture.whole = as_llama ? ResizeSpec{ResizeFilter::kCornerBilinear, ResizeFit::kPadCentred}
                           : ResizeSpec{ResizeFilter::kPillowBilinear, ResizeFit::kStretch};
  spec.positions = LearnedPositions::kAntialiased;
  spec.projector_steps = {linear("mm.0"), activate(as_llama ? Nonlinearity::kGelu : Nonlinearity::kGeluOfError),
                          linear("mm.2")};
}

constexpr TowerFamily kNaflexTowers[] = {{"lfm2", read_lfm2_tower}, {"phi4", read_phi4_tower}};

}  // namespace

std::span<const TowerFamily> naflex_towers() {
  return kNaflexTowers;
}

}  // namespace quire
