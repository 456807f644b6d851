#include "core/model/tools/inspect.h"

#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>

#include "core/base/result.h"
#include "core/model/encode/encoder.h"
#include "core/model/encode/run/tower_run.h"
#include "core/model/formats/gguf/gguf.h"
#include "core/model/tools/memory_plan.h"
#include "kernels/registry.h"

namespace quire {

namespace {

constexpr std::array kShownSizes = {PictureSize{224, 224}, PictureSize{640, 480}, PictureSize{1920, 1080},
                                    PictureSize{4000, 3000}};
constexpr std::int64_t kUnboundedRows = std::int64_t{1} << 30;  // the tower's own limits alone

// The tower on a backend of its own, loaded, so that what start would refuse is found.
struct OpenedTower {
  explicit OpenedTower(const std::filesystem::path& path)
      : backend(create_backend({.device = "cpu"})), encoder(Encoder::open(path.string(), {.backend = backend.get()})) {}

  const TowerSpec& spec() const { return encoder->spec(); }
  std::int64_t rows_of(PictureSize size) const { return encoder->layout(size.width, size.height, {}).num_rows; }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Encoder> encoder;
};

std::string sizing_of(const PictureSpec& picture) {
  const std::string limits = fmt::format("from {} to {} pixels", picture.min_pixels, picture.max_pixels);
  const std::string aligned = fmt::format("sides are multiples of {}", picture.align);
  switch (picture.sizing) {
    case Sizing::kFixed: return fmt::format("{0} x {0} pixels", picture.image_size);
    case Sizing::kSmart: return fmt::format("{}, {}", limits, aligned);
    case Sizing::kBudget: return fmt::format("scaled to at most {} pixels, {}", picture.max_pixels, aligned);
    case Sizing::kLongestEdge: return fmt::format("sides of at most {}, {}", picture.longest_edge, aligned);
    case Sizing::kPatchLimit: return fmt::format("at most {} pixels, padded: {}", picture.max_pixels, aligned);
    case Sizing::kSlices: return fmt::format("slices of about {0} x {0} pixels beside an overview", picture.image_size);
    case Sizing::kLargeTiles:
      return fmt::format("{}, {}; large ones in tiles of {} x {} beside an overview", limits, aligned,
                         picture.tile_size, picture.tile_size);
    default: return fmt::format("tiles of {0} x {0} pixels beside an overview", picture.image_size);
  }
}

}  // namespace

bool is_tower_file(const std::filesystem::path& path) {
  try {
    std::error_code failed;
    if (std::filesystem::is_directory(path, failed)) return false;
    return open_gguf(path)->get_string("general.architecture") == "clip";
  } catch (const StartupError&) {
    return false;
  }
}

std::string describe_tower(const std::filesystem::path& path) {
  const OpenedTower tower(path);
  const TowerSpec& spec = tower.spec();
  std::string out = fmt::format(
      "tower: {} (projector {}), {} blocks, width {}, {} heads, feed-forward {}\n"
      "patches of {} x {} pixels, {} to a row; rows for a text model of hidden size {}{}\n"
      "images: {}\n",
      spec.family, spec.projector, spec.num_blocks, spec.width, spec.num_heads, spec.ffn_size, spec.patch_size,
      spec.patch_size, spec.merge() * spec.merge(), spec.text_width,
      spec.branches.empty() ? "" : fmt::format(", {} deepstack levels", spec.branches.size()), sizing_of(spec.picture));
  std::string tokens;
  for (const PictureSize size : kShownSizes)
    tokens += fmt::format("{}{} x {}: {}", tokens.empty() ? "" : ", ", size.width, size.height, tower.rows_of(size));
  return out + fmt::format("tokens: {}\nmemory: weights {}, up to {} while an image is encoded\n", tokens,
                           format_bytes(tower.encoder->bytes()),
                           format_bytes(most_run_bytes(spec, kUnboundedRows, *tower.backend)));
}

nlohmann::json tower_to_json(const std::filesystem::path& path) {
  const OpenedTower tower(path);
  const TowerSpec& spec = tower.spec();
  nlohmann::json tokens;
  for (const PictureSize size : kShownSizes)
    tokens[fmt::format("{}x{}", size.width, size.height)] = tower.rows_of(size);
  return {{"path", path.string()},
          {"family", spec.family},
          {"projector", spec.projector},
          {"num_blocks", spec.num_blocks},
          {"width", spec.width},
          {"num_heads", spec.num_heads},
          {"ffn_size", spec.ffn_size},
          {"patch_size", spec.patch_size},
          {"patches_per_row", spec.merge() * spec.merge()},
          {"text_width", spec.text_width},
          {"num_deepstack", spec.branches.size()},
          {"image_size", spec.picture.image_size},
          {"min_pixels", spec.picture.min_pixels},
          {"max_pixels", spec.picture.max_pixels},
          {"images", sizing_of(spec.picture)},
          {"tokens", tokens},
          {"weight_bytes", tower.encoder->bytes()},
          {"activation_bytes", most_run_bytes(spec, kUnboundedRows, *tower.backend)}};
}

}  // namespace quire
