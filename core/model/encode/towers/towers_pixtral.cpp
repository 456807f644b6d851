// Pixtral and Mistral 3: rotary towers whose rows of patches end with a learned row.
#include <cmath>

#include "core/model/encode/towers/families.h"

namespace quire {

namespace {

using namespace tower;

// Rows turn the first half of a head, columns the second at frequencies between those of the first.
RopeSpec pixtral_rope(std::int64_t head_dim) {
  RopeSpec::Part part{.style = RopeStyle::kInterleaved};
  for (const bool by_column : {false, true}) {
    for (std::int64_t i = 0; i < head_dim / 4; ++i) {
      const double exponent = static_cast<double>(4 * i + (by_column ? 2 : 0)) / static_cast<double>(head_dim);
      part.angles.push_back({by_column, std::pow(10000.0, -exponent)});
    }
  }
  return {.parts = {part}};
}

void read_pixtral_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  constexpr std::int64_t kLeastTokens = 8;
  constexpr std::int64_t kMostTokens = 1024;
  const bool merges = file.has("mm.patch_merger.weight");
  const std::int64_t side = merges ? merge_side(file, "spatial_merge_size", 2) : 1;
  spec.family = merges ? "Mistral 3" : "Pixtral";
  PictureSpec& picture = spec.picture;
  picture.align = static_cast<std::int32_t>(spec.patch_size * side);
  const std::int64_t cell = std::int64_t{picture.align} * picture.align;
  if (form == PictureForm::kLlamaCpp) {
    picture.sizing = Sizing::kSmart;
    picture.min_pixels = kLeastTokens * cell;
    picture.max_pixels = kMostTokens * cell;
    picture.whole = {ResizeFilter::kCornerBilinear, ResizeFit::kPadCentred};
  } else {
    picture.sizing = Sizing::kLongestEdge;
    picture.longest_edge = picture.image_size;
    picture.max_pixels = std::int64_t{picture.image_size} * picture.image_size;
  }
  spec.texts = {.end = "[IMG_END]"};
  spec.cells = {side};
  spec.norm = TowerNormKind::kRms;
  spec.before_blocks = {rms_norm("v.pre_ln")};
  spec.rope = pixtral_rope(spec.head_dim);
  if (merges) {
    spec.projector_steps = {rms_norm("mm.input_norm"), merge(side * side),
                            linear_by_channel("mm.patch_merger", side * side)};
  }
  const Nonlinearity gelu = form == PictureForm::kLlamaCpp ? Nonlinearity::kGelu : Nonlinearity::kGeluOfError;
  spec.projector_steps.insert(spec.projector_steps.end(), {linear("mm.1"), activate(gelu), linear("mm.2")});
  spec.break_row = "v.token_embd.img_break";
  spec.breaks_rows = true;
}

constexpr TowerFamily kPixtralTowers[] = {{"pixtral", read_pixtral_tower}};

}  // namespace

std::span<const TowerFamily> pixtral_towers() {
  return kPixtralTowers;
}

}  // namespace quire
