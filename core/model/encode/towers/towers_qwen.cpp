// Qwen2-VL, Qwen2.5-VL, Qwen3-VL with Qwen3.5, GLM-4V and MiniMax-M3: patches of a still picture count twice.
#include <fmt/core.h>

#include <cmath>

#include "core/model/encode/towers/families.h"

namespace quire {

namespace {

using namespace tower;

constexpr std::int64_t kMostTokens = 4096;  // llama.cpp's limits of the Qwen families
constexpr std::int64_t kLeastTokens = 8;

// Sides are multiples of a row's; pixels from `least` to `most` where the file does not say.
void size_smartly(const MmprojFile& file, PictureForm form, std::int64_t least, std::int64_t most, TowerSpec& spec) {
  const std::int64_t side = merge_side(file, "spatial_merge_size", 2);
  PictureSpec& picture = spec.picture;
  picture.sizing = Sizing::kSmart;
  picture.align = static_cast<std::int32_t>(spec.patch_size * side);
  const bool as_llama = form == PictureForm::kLlamaCpp;
  const std::int64_t cell = std::int64_t{picture.align} * picture.align;
  picture.min_pixels = as_llama ? kLeastTokens * cell : file.integer("image_min_pixels", least);
  picture.max_pixels = as_llama ? kMostTokens * cell : file.integer("image_max_pixels", most);
  picture.whole = as_llama ? ResizeSpec{ResizeFilter::kCornerBilinear, ResizeFit::kPadCentred}
                           : ResizeSpec{ResizeFilter::kPillowBicubic, ResizeFit::kStretch};
  spec.cells = {side};
  spec.has_grid_positions = true;
}

// Patches of a row.
std::int64_t merged(const TowerSpec& spec) {
  return spec.merge() * spec.merge();
}

// GELU of mergers: by the error function where the model was trained.
Nonlinearity merger_gelu(PictureForm form) {
  return form == PictureForm::kLlamaCpp ? Nonlinearity::kGelu : Nonlinearity::kGeluOfError;
}

void read_qwen2_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  spec.family = "Qwen2-VL";
  size_smartly(file, form, 56 * 56, 16384 * 28 * 28, spec);
  spec.texts = {.begin = "<|vision_start|>", .end = "<|vision_end|>"};
  spec.rope = vision_rope(spec.head_dim);
  spec.projector_steps = {layer_norm("v.post_ln"), merge(merged(spec)), linear("mm.0"), activate(merger_gelu(form)),
                          linear("mm.2")};
}

void read_qwen25_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  constexpr std::int64_t kWindowPixels = 112;
  read_qwen2_tower(file, form, spec);
  spec.family = "Qwen2.5-VL";
  spec.norm = TowerNormKind::kRms;
  spec.projector_steps.front() = rms_norm("v.post_ln");
  spec.window_pattern = file.required_integer("n_wa_pattern");
  if (spec.window_pattern < 1) file.fail("the key 'clip.vision.n_wa_pattern' must be positive");
  spec.window_cells = kWindowPixels / spec.patch_size / spec.merge();
  if (spec.window_cells < 1) file.fail("clip.vision.patch_size is too large for windows of 112 pixels");
}

void read_qwen3_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  spec.family = "Qwen3-VL";
  size_smartly(file, form, 65536, 16777216, spec);
  spec.texts = {.begin = "<|vision_start|>", .end = "<|vision_end|>"};
  spec.positions = LearnedPositions::kAligned;
  spec.rope = vision_rope(spec.head_dim);
  const TowerStep gelu = activate(merger_gelu(form));
  spec.projector_steps = {layer_norm("v.post_ln"), merge(merged(spec)), linear("mm.0"), gelu, linear("mm.2")};
  for (std::int64_t block = 0; block < spec.num_blocks; ++block) {
    const std::string name = fmt::format("v.deepstack.{}.", block);
    if (!file.has(name + "fc1.weight")) continue;
    spec.branches.push_back(
        {block, {merge(merged(spec)), layer_norm(name + "norm"), linear(name + "fc1"), gelu, linear(name + "fc2")}});
  }
}

void read_glm4v_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  spec.family = "GLM-4V";
  size_smartly(file, form, 112 * 112 / 2, 14 * 14 * 2 * 2 * 6144, spec);
  if (form == PictureForm::kTrained) spec.picture.short_side = ShortSide::kEnlargedBelow;
  spec.texts = {.begin = "<|begin_of_image|>", .end = "<|end_of_image|>"};
  spec.norm = TowerNormKind::kRms;
  spec.after_patches = {rms_norm("v.norm_embd")};
  spec.positions = LearnedPositions::kCubic;
  spec.rope = vision_rope(spec.head_dim);
  spec.projector_steps = {rms_norm("v.post_ln"),
                          merge(merged(spec)),
                          linear_by_channel("mm.patch_merger", merged(spec)),
                          linear("mm.model.fc"),
                          layer_norm("mm.post_norm", 1e-5),
                          activate(Nonlinearity::kGeluOfError),
                          gated("mm.gate", "mm.up", "mm.down", spec.activation)};
}

// A third of the pairs, rounded down to whole ones, is for time, which a picture has none of.
RopeSpec axes_rope(std::int64_t head_dim) {
  const std::int64_t axis = 2 * (2 * (head_dim / 2) / 3 / 2);
  RopeSpec rope;
  for (const bool by_column : {false, true}) {
    RopeSpec::Part part{.offset = by_column ? 2 * axis : axis};
    for (std::int64_t i = 0; i < axis / 2; ++i)
      part.angles.push_back({by_column, std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(axis))});
    rope.parts.push_back(part);
  }
  return rope;
}

void read_minimax_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  constexpr std::int64_t kTokens = 576;
  spec.family = "MiniMax-M3";
  const std::int64_t side = spec.patch_size * merge_side(file, "spatial_merge_size", 2);
  const std::int64_t cell = side * side;
  size_smartly(file, PictureForm::kTrained, kLeastTokens * cell, kTokens * cell, spec);
  if (form == PictureForm::kLlamaCpp) spec.picture.whole.filter = ResizeFilter::kRoundedBicubic;
  spec.has_grid_positions = false;
  spec.texts = {.begin = "]<]start of image[>[", .end = "]<]end of image[>["};
  spec.activation = Nonlinearity::kGeluOfError;
  spec.before_blocks = {layer_norm("v.pre_ln")};
  spec.rope = axes_rope(spec.head_dim);
  const TowerStep gelu = activate(Nonlinearity::kGeluOfError);
  spec.projector_steps = {linear("mm.1"),          gelu, linear("mm.2"),         merge(merged(spec)),
                          linear("mm.merger.fc1"), gelu, linear("mm.merger.fc2")};
}

constexpr TowerFamily kQwenTowers[] = {
    {"qwen3vl_merger", read_qwen3_tower}, {"qwen2.5vl_merger", read_qwen25_tower}, {"qwen2vl_merger", read_qwen2_tower},
    {"glm4v", read_glm4v_tower},          {"minimax_m3", read_minimax_tower},
};

}  // namespace

std::span<const TowerFamily> qwen_towers() {
  return kQwenTowers;
}

}  // namespace quire
