// Gemma 3, Gemma 4 and its encoder without blocks.
#include <algorithm>
#include <cmath>

#include "core/model/encode/towers/families.h"

namespace quire {

namespace {

using namespace tower;

void read_gemma3_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  spec.family = "Gemma 3";
  const std::int64_t side = merge_side(file, "projector.scale_factor", 4);
  if (form == PictureForm::kLlamaCpp) {
    spec.picture.whole = {ResizeFilter::kCornerBilinear, ResizeFit::kPadCentred};
    spec.texts = {.begin = "<start_of_image>", .end = "<end_of_image>"};
  } else {
    spec.picture.whole = {ResizeFilter::kPillowBilinear, ResizeFit::kStretch};
    spec.texts = {.begin = "\n\n<start_of_image>", .end = "<end_of_image>\n\n"};
  }
  spec.is_bidirectional = true;
  spec.cells = {side};
  spec.positions = LearnedPositions::kByRow;
  spec.projector_steps = {layer_norm("v.post_ln"), mean(side * side), rms_norm("mm.soft_emb_norm"),
                          linear_transposed("mm.input_projection")};
}

// Between these numbers of rows; trained pictures always fill the budget.
void size_by_budget(const MmprojFile& file, PictureForm form, std::int64_t cell_side, TowerSpec& spec) {
  constexpr std::int64_t kLeastTokens = 40;
  constexpr std::int64_t kMostTokens = 280;
  PictureSpec& picture = spec.picture;
  picture.align = static_cast<std::int32_t>(cell_side);
  picture.min_pixels = kLeastTokens * cell_side * cell_side;
  picture.max_pixels = kMostTokens * cell_side * cell_side;
  if (form == PictureForm::kLlamaCpp) {
    picture.sizing = Sizing::kSmart;
    picture.whole = {ResizeFilter::kCornerBilinear, ResizeFit::kPadCentred};
  } else {
    picture.sizing = Sizing::kBudget;
    picture.max_pixels = file.integer("image_max_pixels", picture.max_pixels);
    picture.min_pixels = std::min(picture.min_pixels, picture.max_pixels);
  }
  spec.texts = {.begin = "<|image>", .end = "<image|>"};
  spec.is_bidirectional = true;
  spec.positions = LearnedPositions::kAxes;
}

// Each half of a head is a head of its own: the first turns by column, the second by row.
RopeSpec gemma4_rope(std::int64_t head_dim) {
  RopeSpec rope;
  for (const bool by_column : {true, false}) {
    RopeSpec::Part part{.offset = by_column ? 0 : head_dim / 2};
    for (std::int64_t i = 0; i < head_dim / 4; ++i)
      part.angles.push_back(
          {by_column, std::pow(100.0, -4.0 * static_cast<double>(i) / static_cast<double>(head_dim))});
    rope.parts.push_back(part);
  }
  return rope;
}

void read_gemma4_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  spec.family = "Gemma 4";
  const std::int64_t side = merge_side(file, "projector.scale_factor", 3);
  size_by_budget(file, form, spec.patch_size * side, spec);
  spec.picture.is_signed = true;
  spec.cells = {side};
  spec.norm = TowerNormKind::kRms;
  spec.rope = gemma4_rope(spec.head_dim);
  spec.attention_scale = 1.0F;
  spec.norms_values = true;
  if (form == PictureForm::kTrained && spec.activation == Nonlinearity::kQuickGelu)
    spec.activation = Nonlinearity::kGelu;
  spec.projector_steps = {
      mean(side * side), scale(std::sqrt(static_cast<float>(spec.width))),
      if_present({.kind = TowerStep::Kind::kStandardise, .weight = "v.std_bias", .up = "v.std_scale"}), rms_norm(""),
      linear("mm.input_projection")};
}

void read_gemma4_unified_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  constexpr std::int64_t kPatches = 3;  // side of an embedded patch, in patches of the file
  constexpr double kPatchEps = 1e-5;
  spec.family = "Gemma 4 unified";
  spec.patch_size *= kPatches;
  spec.picture.patch_size = static_cast<std::int32_t>(spec.patch_size);
  spec.num_blocks = 0;
  size_by_budget(file, form, spec.patch_size, spec);
  // The pixels of a flat patch differ by little more than f32 resolves.
  TowerStep of_pixels = layer_norm("v.patch_norm.1", kPatchEps);
  of_pixels.in_double = true;
  spec.before_patches = {of_pixels};
  spec.after_patches = {layer_norm("v.patch_norm.2", kPatchEps)};
  spec.before_blocks = {layer_norm("v.patch_norm.3", kPatchEps)};
  spec.projector_steps = {rms_norm(""), linear("mm.input_projection")};
}

constexpr TowerFamily kGemmaTowers[] = {
    {"gemma4v", read_gemma4_tower}, {"gemma3", read_gemma3_tower}, {"gemma4uv", read_gemma4_unified_tower}};

}  // namespace

std::span<const TowerFamily> gemma_towers() {
  return kGemmaTowers;
}

}  // namespace quire
