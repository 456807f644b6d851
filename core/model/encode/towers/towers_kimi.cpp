// Kimi-VL and Kimi K2.5 (MoonViT).
#include "core/model/encode/towers/families.h"

namespace quire {

namespace {

using namespace tower;

constexpr double kProjectorEps = 1e-5;

void read_moonvit_tower(const MmprojFile& file, PictureForm form, std::optional<double> projector_eps,
                        TowerSpec& spec) {
  const std::int64_t side = merge_side(file, "projector.scale_factor", 2);
  spec.cells = {side};
  spec.picture.align = static_cast<std::int32_t>(spec.patch_size * side);
  spec.rope = halves_rope(spec.head_dim, true);
  const Nonlinearity gelu = form == PictureForm::kLlamaCpp ? Nonlinearity::kGelu : Nonlinearity::kGeluOfError;
  spec.projector_steps = {layer_norm("v.post_ln"), layer_norm("mm.input_norm", projector_eps),
                          merge(side * side),      linear("mm.1"),
                          activate(gelu),          linear("mm.2")};
  if (form == PictureForm::kTrained) {
    spec.picture.sizing = Sizing::kPatchLimit;
    spec.picture.whole = {ResizeFilter::kPillowBicubic, ResizeFit::kPlace};
  } else {
    spec.picture.sizing = Sizing::kSmart;
  }
}

void read_kimi_vl_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  constexpr std::int64_t kLeastTokens = 8;
  constexpr std::int64_t kMostTokens = 1024;
  spec.family = "Kimi-VL";
  read_moonvit_tower(file, form, kProjectorEps, spec);
  PictureSpec& picture = spec.picture;
  const std::int64_t cell = std::int64_t{picture.align} * picture.align;
  picture.min_pixels = form == PictureForm::kLlamaCpp ? kLeastTokens * cell : 0;
  picture.max_pixels = kMostTokens * cell;
  if (form == PictureForm::kTrained)
    picture.max_pixels = file.integer("image_max_pixels", picture.max_pixels);
  else
    picture.whole = {ResizeFilter::kCornerBilinear, ResizeFit::kPadCentred};
  spec.texts = {.begin = "<|media_start|>", .end = "<|media_end|>"};
  if (form == PictureForm::kTrained) spec.texts.begin = "<|media_start|>image<|media_content|>";
  spec.positions = form == PictureForm::kTrained ? LearnedPositions::kCubic : LearnedPositions::kAntialiased;
}

void read_kimi_k25_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  spec.family = "Kimi K2.5";
  read_moonvit_tower(file, form, {}, spec);
  PictureSpec& picture = spec.picture;
  picture.min_pixels = form == PictureForm::kLlamaCpp ? file.required_integer("image_min_pixels") : 0;
  picture.max_pixels = file.required_integer("image_max_pixels");
  if (form == PictureForm::kLlamaCpp) picture.whole = {ResizeFilter::kFourPointsCubic, ResizeFit::kPadCentred};
  spec.texts = {.begin = "<|media_begin|>", .end = "<|media_end|>"};
  if (form == PictureForm::kTrained) spec.texts.begin = "<|media_begin|>image<|media_content|>";
  spec.positions = LearnedPositions::kCubic;
}

constexpr TowerFamily kKimiTowers[] = {{"kimivl", read_kimi_vl_tower}, {"kimik25", read_kimi_k25_tower}};

}  // namespace

std::span<const TowerFamily> kimi_towers() {
  return kKimiTowers;
}

}  // namespace quire
