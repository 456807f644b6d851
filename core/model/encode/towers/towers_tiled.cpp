// InternVL, SmolVLM (Idefics3) and Llama 4: pictures cut into tiles of the tower's size, beside an overview.
#include "core/model/encode/towers/families.h"

namespace quire {

namespace {

using namespace tower;

// Tiles with bars, an overview without, as llama.cpp has them.
void cut_as_llama_cpp(PictureSpec& picture) {
  picture.whole = {ResizeFilter::kCornerBilinear, ResizeFit::kStretch};
  picture.tiles = {ResizeFilter::kFourPointsCubic, ResizeFit::kPadCentred};
}

void read_internvl_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  constexpr std::int32_t kMostTiles = 64;
  const bool as_llama = form == PictureForm::kLlamaCpp;
  const std::int64_t side = merge_side(file, "projector.scale_factor", 2);
  spec.family = "InternVL";
  PictureSpec& picture = spec.picture;
  const auto least = static_cast<std::int32_t>(file.integer("preproc_min_tiles", 1));
  const auto most = static_cast<std::int32_t>(file.integer("preproc_max_tiles", 12));
  if (least < 1 || most < least || most > kMostTiles)
    file.fail("clip.vision.preproc_min_tiles and preproc_max_tiles must ascend from 1 to 64");
  const std::int32_t unit = as_llama ? picture.image_size : 1;
  for (std::int32_t a = 1; a <= most; ++a) {
    for (std::int32_t b = 1; b <= most; ++b) {
      if (a * b >= least && a * b <= most) picture.candidates.push_back({a * unit, b * unit});
    }
  }
  if (as_llama) {
    picture.sizing = Sizing::kBestTiles;
    cut_as_llama_cpp(picture);
  } else {
    picture.sizing = Sizing::kClosestTiles;
    picture.always_tiles = picture.overview_of_many_only = true;
  }
  const Nonlinearity gelu = as_llama ? Nonlinearity::kGelu : Nonlinearity::kGeluOfError;
  if (!as_llama && spec.activation == Nonlinearity::kGelu) spec.activation = gelu;
  spec.texts = {.begin = "<img>", .end = "</img>"};
  spec.cells = {side};
  spec.positions = LearnedPositions::kByRow;
  spec.class_token = as_llama ? ClassToken::kLast : ClassToken::kFirst;
  if (!file.has("v.blk.0.ln1.bias")) spec.norm = TowerNormKind::kRms;  // the tower of 6 billion parameters
  spec.projector_steps = {merge(side * side), layer_norm("mm.model.mlp.0", 1e-5), linear("mm.model.mlp.1"),
                          activate(gelu), linear("mm.model.mlp.3")};
}

void read_idefics3_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  const std::int64_t side = merge_side(file, "projector.scale_factor", 4);
  spec.family = "SmolVLM";
  PictureSpec& picture = spec.picture;
  picture.sizing = Sizing::kEdgeTiles;
  picture.longest_edge = static_cast<std::int32_t>(file.integer("preproc_image_size", picture.image_size));
  if (picture.longest_edge < 1 || picture.longest_edge > (1 << 14))
    file.fail("the key 'clip.vision.preproc_image_size' must lie from 1 to 16384");
  if (form == PictureForm::kLlamaCpp) {
    cut_as_llama_cpp(picture);
    picture.always_tiles = true;
  } else {
    picture.whole = picture.tiles = {ResizeFilter::kPillowLanczos, ResizeFit::kStretch};
  }
  spec.texts = {.overview_begin = "<fake_token_around_image><global-img>",
                .overview_end = "<fake_token_around_image>",
                .tile_begin = "<fake_token_around_image><row_{row}_col_{column}>",
                .row_end = "\n",
                .tiles_end = "\n\n"};
  spec.cells = {side};
  spec.positions = LearnedPositions::kByRow;
  spec.projector_steps = {layer_norm("v.post_ln"), merge(side * side), linear("mm.model.fc")};
}

void read_llama4_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  const bool as_llama = form == PictureForm::kLlamaCpp;
  const std::int64_t side = merge_side(file, "projector.scale_factor", 2);
  spec.family = "Llama 4";
  PictureSpec& picture = spec.picture;
  const std::int32_t size = picture.image_size;
  spec.texts = {.begin = "<|image_start|>", .end = "<|image_end|>"};
  if (as_llama) {
    constexpr std::int32_t kMostTiles = 3;
    picture.sizing = Sizing::kBestTiles;
    cut_as_llama_cpp(picture);
    for (std::int32_t x = 1; x <= kMostTiles; ++x) {
      for (std::int32_t y = 1; y <= kMostTiles; ++y) {
        if (x * y > 1) picture.candidates.push_back({x * size, y * size});
      }
    }
  } else {
    constexpr std::int32_t kMostTiles = 16;
    picture.sizing = Sizing::kLlama4Tiles;
    picture.whole = {ResizeFilter::kPillowBilinear, ResizeFit::kStretch};
    picture.tiles = {ResizeFilter::kPillowBilinear, ResizeFit::kPadCorner};
    picture.always_tiles = picture.overview_of_many_only = true;
    for (std::int32_t y = 1; y <= kMostTiles; ++y) {
      for (std::int32_t x = 1; x * y <= kMostTiles; ++x)
        picture.candidates.push_back({x * size, y * size});
    }
    spec.texts.tile_between = "<|tile_x_separator|>";
    spec.texts.row_end = spec.texts.tiles_end = "<|tile_y_separator|>";
    spec.texts.overview_begin = "<|image|>";
  }
  const Nonlinearity gelu = as_llama ? Nonlinearity::kGelu : Nonlinearity::kGeluOfError;
  if (!as_llama && spec.activation == Nonlinearity::kGelu) spec.activation = gelu;
  spec.cells = {side};
  spec.columns_first = as_llama;
  spec.positions = LearnedPositions::kByRow;
  spec.class_token = ClassToken::kLast;
  spec.before_blocks = {layer_norm("v.pre_ln")};
  spec.rope = halves_rope(spec.head_dim, true, 1);
  spec.projector_steps = {layer_norm("v.post_ln"),  merge(side * side), linear("mm.model.mlp.1"), activate(gelu),
                          linear("mm.model.mlp.2"), activate(gelu),     linear("mm.model.fc")};
}

constexpr TowerFamily kTiledTowers[] = {
    {"internvl", read_internvl_tower}, {"idefics3", read_idefics3_tower}, {"llama4", read_llama4_tower}};

}  // namespace

std::span<const TowerFamily> tiled_towers() {
  return kTiledTowers;
}

}  // namespace quire
