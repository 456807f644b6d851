#include "core/model/encode/towers/families.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/result.h"

namespace quire {

namespace {

std::array<std::span<const TowerFamily>, 9> all_families() {
  return {qwen_towers(), gemma_towers(),  pixtral_towers(), llava_towers(),  tiled_towers(),
          kimi_towers(), naflex_towers(), ocr_towers(),     minicpm_towers()};
}

const TowerFamily* find_family(std::string_view projector) {
  for (const auto families : all_families()) {
    const auto found = std::ranges::find(families, projector, &TowerFamily::projector);
    if (found != families.end()) return &*found;
  }
  return nullptr;
}

std::array<float, 3> colours(const MmprojFile& file, const std::string& key) {
  const std::vector<double> values = file.numbers(key);
  if (values.size() != 3) file.fail(fmt::format("the key 'clip.vision.{}' must hold three numbers", key));
  return {static_cast<float>(values[0]), static_cast<float>(values[1]), static_cast<float>(values[2])};
}

constexpr std::int64_t kMostSide = 1 << 16;

std::int64_t bounded(const MmprojFile& file, const std::string& key, std::int64_t value, std::int64_t least,
                     std::int64_t most = kMostSide) {
  if (value < least || value > most)
    file.fail(fmt::format("the key 'clip.vision.{}' is {}, and it must lie from {} to {}", key, value, least, most));
  return value;
}

std::int64_t bounded_key(const MmprojFile& file, const std::string& key, std::int64_t least) {
  return bounded(file, key, file.required_integer(key), least);
}

// Features that the last step gives.
std::int64_t text_width_of(const MmprojFile& file, const TowerSpec& spec) {
  for (auto step = spec.projector_steps.rbegin(); step != spec.projector_steps.rend(); ++step) {
    if (step->kind == TowerStep::Kind::kLinear) {
      const auto& shape = file.tensors().shape_of(step->weight + ".weight");
      return step->transposed ? shape.back() : shape.front();
    }
    if (step->kind == TowerStep::Kind::kGated) return file.tensors().shape_of(step->down + ".weight").front();
  }
  file.fail("the projector has no matrix");
}

void read_common(const MmprojFile& file, TowerSpec& spec) {
  spec.where = file.where();
  spec.projector = file.projector();
  spec.width = bounded_key(file, "embedding_length", 1);
  spec.num_heads = bounded_key(file, "attention.head_count", 0);
  spec.head_dim = spec.num_heads == 0 ? 0 : spec.width / spec.num_heads;
  if (spec.head_dim * spec.num_heads != (spec.num_heads == 0 ? 0 : spec.width))
    file.fail("clip.vision.embedding_length is not a multiple of clip.vision.attention.head_count");
  spec.ffn_size = bounded(file, "feed_forward_length", file.integer("feed_forward_length", 0), 0);
  spec.num_blocks = bounded_key(file, "block_count", 0);
  if (spec.num_blocks > 0 && spec.num_heads == 0)
    file.fail("the key 'clip.vision.attention.head_count' is 0, and the tower has blocks");
  spec.patch_size = bounded_key(file, "patch_size", 1);
  spec.eps = file.required_number("attention.layer_norm_epsilon");
  spec.attention_scale = spec.head_dim == 0 ? 1.0F : 1.0F / std::sqrt(static_cast<float>(spec.head_dim));
  spec.activation = file.general_flag("use_gelu")   ? Nonlinearity::kGelu
                    : file.general_flag("use_silu") ? Nonlinearity::kSilu
                                                    : Nonlinearity::kQuickGelu;
  PictureSpec& picture = spec.picture;
  picture.patch_size = static_cast<std::int32_t>(spec.patch_size);
  picture.image_size = static_cast<std::int32_t>(bounded_key(file, "image_size", 1));
  picture.mean = colours(file, "image_mean");
  picture.deviation = colours(file, "image_std");
  if (std::ranges::any_of(picture.deviation, [](float value) { return !(value > 0.0F); }))
    file.fail("the key 'clip.vision.image_std' must hold positive numbers");
}

void check_pictures(const MmprojFile& file, const TowerSpec& spec) {
  const PictureSpec& picture = spec.picture;
  const std::int64_t cell = spec.merge() * spec.patch_size;
  const bool has_fixed_side = picture.sizing != Sizing::kSmart && picture.sizing != Sizing::kBudget &&
                              picture.sizing != Sizing::kLongestEdge && picture.sizing != Sizing::kPatchLimit &&
                              picture.sizing != Sizing::kSlices && picture.sizing != Sizing::kLargeTiles;
  // Pixels behind the last whole patch are not read: 384 pixels are 27 patches of 14.
  const std::int64_t patches = picture.image_size / spec.patch_size;
  if (has_fixed_side && (patches == 0 || patches % spec.merge() != 0))
    file.fail(fmt::format("clip.vision.image_size is {}, whose {} patches do not merge by {}", picture.image_size,
                          patches, spec.merge()));
  if (!has_fixed_side && picture.align % cell != 0)
    file.fail(fmt::format("pictures are aligned to {} pixels, and a row has {}", picture.align, cell));
  if (picture.max_pixels < 0 || picture.min_pixels < 0 || picture.min_pixels > picture.max_pixels)
    file.fail(fmt::format("clip.vision.image_min_pixels ({}) exceeds clip.vision.image_max_pixels ({})",
                          picture.min_pixels, picture.max_pixels));
}

// The filter of a directory's processor, by its number in Pillow.
void read_filter(const MmprojFile& file, PictureSpec& picture) {
  constexpr std::int64_t kNone = -1;
  const std::int64_t number = file.integer("resample", kNone);
  if (number == kNone) return;
  constexpr std::array kFilters = {ResizeFilter::kPillowLanczos, ResizeFilter::kPillowBilinear,
                                   ResizeFilter::kPillowBicubic};
  if (number < 1 || number > std::ssize(kFilters))
    file.fail(fmt::format(
        "'resample' of the image processor is {}; 1 (Lanczos), 2 (bilinear) and 3 (bicubic) are known", number));
  picture.whole.filter = picture.tiles.filter = kFilters[static_cast<std::size_t>(number - 1)];
}

}  // namespace

std::int64_t TowerSpec::merge() const {
  std::int64_t side = 1;
  for (const std::int64_t cell : cells)
    side *= cell;
  return side;
}

TowerSpec read_tower_spec(const MmprojFile& file, PictureForm form) {
  const TowerFamily* family = find_family(file.projector());
  if (family == nullptr) {
    file.fail(fmt::format("the projector '{}' is not supported (supported: {}); --no-mmproj serves the text alone",
                          file.projector(), fmt::join(tower_projectors(), ", ")));
  }
  TowerSpec spec;
  read_common(file, spec);
  spec.picture.as_llama_cpp = form == PictureForm::kLlamaCpp;
  family->read(file, form, spec);
  if (form == PictureForm::kTrained) read_filter(file, spec.picture);
  if (spec.text_width == 0) spec.text_width = text_width_of(file, spec);
  check_pictures(file, spec);
  return spec;
}

std::vector<std::string> tower_projectors() {
  std::vector<std::string> names;
  for (const auto families : all_families()) {
    for (const TowerFamily& family : families)
      names.emplace_back(family.projector);
  }
  return names;
}

namespace tower {

using Kind = TowerStep::Kind;

std::int64_t merge_side(const MmprojFile& file, const std::string& key, std::int64_t otherwise) {
  constexpr std::int64_t kMost = 64;
  return bounded(file, key, file.integer(key, otherwise), 1, kMost);
}

TowerStep layer_norm(std::string weight, std::optional<double> eps) {
  return {.kind = Kind::kNorm, .weight = std::move(weight), .norm = TowerNormKind::kLayer, .eps = eps};
}
TowerStep rms_norm(std::string weight, std::optional<double> eps) {
  return {.kind = Kind::kNorm, .weight = std::move(weight), .norm = TowerNormKind::kRms, .eps = eps};
}
TowerStep merge(std::int64_t count) {
  return {.kind = Kind::kMerge, .count = count};
}
TowerStep mean(std::int64_t count) {
  return {.kind = Kind::kMean, .count = count};
}
TowerStep linear(std::string weight) {
  return {.kind = Kind::kLinear, .weight = std::move(weight)};
}
TowerStep linear_by_channel(std::string weight, std::int64_t rows) {
  return {.kind = Kind::kLinear, .weight = std::move(weight), .by_channel = rows};
}
TowerStep linear_transposed(std::string weight) {
  return {.kind = Kind::kLinear, .weight = std::move(weight), .transposed = true};
}
TowerStep activate(Nonlinearity kind) {
  return {.kind = Kind::kActivate, .activation = kind};
}
TowerStep gated(std::string gate, std::string up, std::string down, Nonlinearity kind) {
  return {.kind = Kind::kGated,
          .weight = std::move(gate),
          .up = std::move(up),
          .down = std::move(down),
          .activation = kind};
}
TowerStep scale(float factor) {
  return {.kind = Kind::kScale, .factor = factor};
}
TowerStep if_present(TowerStep step) {
  step.is_optional = true;
  return step;
}

namespace {

constexpr double kBase = 10000.0;

}  // namespace

RopeSpec vision_rope(std::int64_t head_dim) {
  RopeSpec::Part part;
  const std::int64_t quarter = head_dim / 4;
  for (const bool by_column : {false, true}) {
    for (std::int64_t i = 0; i < quarter; ++i)
      part.angles.push_back(
          {by_column, std::pow(kBase, -4.0 * static_cast<double>(i) / static_cast<double>(head_dim))});
  }
  return {.parts = {part}};
}

RopeSpec halves_rope(std::int64_t head_dim, bool column_first, std::int32_t first_place) {
  RopeSpec rope = vision_rope(head_dim);
  RopeSpec::Part& part = rope.parts.front();
  part.style = RopeStyle::kInterleaved;
  for (RopeSpec::Angle& angle : part.angles)
    angle.by_column = angle.by_column != column_first;
  rope.first_place = first_place;
  return rope;
}

}  // namespace tower

}  // namespace quire
