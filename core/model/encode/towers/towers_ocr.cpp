// dots.ocr and PaddleOCR-VL.
#include "core/model/encode/towers/families.h"

namespace quire {

namespace {

using namespace tower;

void size_by_file(const MmprojFile& file, PictureForm form, ResizeFilter llama_filter, TowerSpec& spec) {
  const std::int64_t side = merge_side(file, "projector.scale_factor", 2);
  PictureSpec& picture = spec.picture;
  picture.sizing = Sizing::kSmart;
  picture.align = static_cast<std::int32_t>(spec.patch_size * side);
  picture.min_pixels = file.required_integer("image_min_pixels");
  picture.max_pixels = file.required_integer("image_max_pixels");
  picture.whole = form == PictureForm::kLlamaCpp ? ResizeSpec{llama_filter, ResizeFit::kPadCentred}
                                                 : ResizeSpec{ResizeFilter::kPillowBicubic, ResizeFit::kStretch};
  spec.cells = {side};
  spec.rope = vision_rope(spec.head_dim);
}

void read_dots_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  spec.family = "dots.ocr";
  size_by_file(file, form, ResizeFilter::kFourPointsCubic, spec);
  spec.texts = {.begin = "<|img|>", .end = "<|endofimg|>"};
  spec.norm = TowerNormKind::kRms;
  spec.before_blocks = {rms_norm("v.pre_ln")};
  spec.projector_steps = {
      rms_norm("mm.post_norm"), layer_norm("mm.input_norm", 1e-6),    merge(spec.merge() * spec.merge()),
      linear("mm.0"),           activate(Nonlinearity::kGeluOfError), linear("mm.2")};
}

void read_paddle_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  spec.family = "PaddleOCR-VL";
  size_by_file(file, form, ResizeFilter::kCornerBilinear, spec);
  if (form == PictureForm::kTrained) spec.picture.short_side = ShortSide::kEnlarged;
  spec.texts = {.begin = "<|IMAGE_START|>", .end = "<|IMAGE_END|>"};
  spec.has_grid_positions = true;
  spec.positions = form == PictureForm::kTrained ? LearnedPositions::kHalfPixels : LearnedPositions::kAntialiased;
  const Nonlinearity gelu = form == PictureForm::kLlamaCpp ? spec.activation : Nonlinearity::kGeluOfError;
  spec.projector_steps = {layer_norm("v.post_ln"),
                          layer_norm("mm.input_norm", 1e-5),
                          merge(spec.merge() * spec.merge()),
                          linear("mm.1"),
                          activate(gelu),
                          linear("mm.2")};
}

constexpr TowerFamily kOcrTowers[] = {{"dots_ocr", read_dots_tower}, {"paddleocr", read_paddle_tower}};

}  // namespace

std::span<const TowerFamily> ocr_towers() {
  return kOcrTowers;
}

}  // namespace quire
