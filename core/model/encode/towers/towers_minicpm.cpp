// MiniCPM-V 2.6 to 4.5 (a resampler) and 4.6 (a merger within the tower): slices of the picture's own aspect.
#include <fmt/core.h>

#include "core/model/encode/towers/families.h"

namespace quire {

namespace {

using namespace tower;

void cut_slices(PictureForm form, std::int64_t align, TowerSpec& spec) {
  PictureSpec& picture = spec.picture;
  picture.sizing = Sizing::kSlices;
  picture.align = static_cast<std::int32_t>(align);
  if (form == PictureForm::kLlamaCpp) {
    picture.whole = {ResizeFilter::kCornerBilinear, ResizeFit::kStretch};
    picture.tiles = {ResizeFilter::kFourPointsCubic, ResizeFit::kPadCentred};
  }
  picture.overview_first = true;
  spec.texts = {.overview_begin = "<image>",
                .overview_end = "</image>",
                .tile_begin = "<slice>",
                .tile_end = "</slice>",
                .row_end = "\n"};
  spec.positions = LearnedPositions::kBuckets;
  spec.position_buckets = 70;
}

std::int64_t default_queries(std::int64_t version) {
  return version == 2 ? 96 : 64;
}

void read_resampler_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  const std::int64_t version = file.general_integer("minicpmv_version", 2);
  if (version < 3)
    file.fail(
        fmt::format("MiniCPM-V of version {} (clip.minicpmv_version) is not supported, version 3 (MiniCPM-V 2.6) "
                    "and later are",
                    version));
  spec.family = "MiniCPM-V";
  cut_slices(form, spec.patch_size, spec);
  spec.num_queries = file.general_integer("minicpmv_query_num", default_queries(version));
  if (spec.num_queries < 1 || spec.num_queries > 4096) file.fail("the key 'clip.minicpmv_query_num' is out of range");
  spec.last_norm = {layer_norm("v.post_ln")};
  spec.projector_steps = {layer_norm("resampler.ln_post"), linear("resampler.proj")};
}

void read_merging_tower(const MmprojFile& file, PictureForm form, TowerSpec& spec) {
  constexpr std::int64_t kSide = 2;  // side of both merges
  spec.family = "MiniCPM-V 4.6";
  const std::vector<std::int64_t> layers = file.integers("wa_layer_indexes");
  if (layers.size() != 1 || layers[0] < 0 || layers[0] >= spec.num_blocks)
    file.fail("the key 'clip.vision.wa_layer_indexes' must name one block");
  spec.vit_merger_after = layers[0];
  spec.cells = {kSide, kSide};
  cut_slices(form, spec.patch_size * spec.merge(), spec);
  spec.projector_steps = {layer_norm("v.post_ln"),
                          merge(kSide * kSide),
                          layer_norm("mm.input_norm"),
                          linear("mm.up"),
                          activate(Nonlinearity::kGeluOfError),
                          linear("mm.down")};
}

constexpr TowerFamily kMinicpmTowers[] = {{"resampler", read_resampler_tower}, {"minicpmv4_6", read_merging_tower}};

}  // namespace

std::span<const TowerFamily> minicpm_towers() {
  return kMinicpmTowers;
}

}  // namespace quire
