#include "core/model/encode/encoder.h"

#include <fmt/core.h>

#include <filesystem>
#include <stdexcept>

#include "core/base/result.h"
#include "core/model/encode/picture_plan.h"
#include "core/model/encode/run/tower_run.h"
#include "core/model/encode/towers/hf_tower.h"
#include "kernels/check.h"

namespace quire {

PreparedPicture::PreparedPicture(const std::shared_ptr<const TowerWeights>& weights,
                                 std::shared_ptr<const PicturePlan> plan, std::vector<Picture> tiles)
    : weights_(weights), row_width_(weights->spec.row_width()), plan_(std::move(plan)), tiles_(std::move(tiles)) {}

std::int64_t PreparedPicture::num_rows() const {
  return plan_->layout.num_rows;
}

std::int64_t PreparedPicture::row_width() const {
  return row_width_;
}

std::size_t PreparedPicture::num_bytes() const {
  std::size_t count = 0;
  for (const Picture& tile : tiles_)
    count += tile.rgb.size();
  return count;
}

std::unique_ptr<EncoderRun> PreparedPicture::start() const {
  std::shared_ptr<const TowerWeights> weights = weights_.lock();
  if (weights == nullptr) throw std::runtime_error("the tower that the picture was prepared for was unloaded");
  return std::make_unique<TowerRun>(std::move(weights), shared_from_this());
}

std::unique_ptr<Encoder> Encoder::open(const std::string& path, const EncoderOptions& options) {
  std::error_code failed;
  MmprojFile file = std::filesystem::is_directory(path, failed)
                        ? MmprojFile(open_hf_tower(path, options.ignores_unknown_keys))
                        : MmprojFile::open(path);
  TowerSpec spec = read_tower_spec(file, options.form);
  return std::make_unique<Encoder>(file, std::move(spec), options);
}

Encoder::Encoder(MmprojFile& file, TowerSpec spec, const EncoderOptions& options) {
  QUIRE_CHECK(options.backend != nullptr, "an encoder without a backend");
  if (options.text_width > 0 && options.text_width != spec.text_width) {
    file.fail(fmt::format("the file's rows are {} wide and the text model's embeddings {}: it belongs to another model",
                          spec.text_width, options.text_width));
  }
  if (options.min_pixels) spec.picture.min_pixels = *options.min_pixels;
  if (options.max_pixels) spec.picture.max_pixels = *options.max_pixels;
  if (spec.picture.min_pixels > spec.picture.max_pixels)
    file.fail(fmt::format("pictures of at least {} pixels and at most {} are asked for", spec.picture.min_pixels,
                          spec.picture.max_pixels));
  if (!options.text_has_grid_positions) spec.has_grid_positions = false;
  if (options.is_bidirectional) spec.is_bidirectional = *options.is_bidirectional;
  weights_ = load_tower(file, std::move(spec), *options.backend);
}

Encoder::~Encoder() = default;

MediaLayout Encoder::layout(std::int32_t width, std::int32_t height, const PictureSettings& settings) const {
  return plan_picture(weights_->spec, {width, height}, settings).layout;
}

std::shared_ptr<const PreparedPicture> Encoder::prepare(const Picture& picture, const PictureSettings& settings) const {
  auto plan =
      std::make_shared<const PicturePlan>(plan_picture(weights_->spec, {picture.width, picture.height}, settings));
  std::vector<Picture> tiles = cut_tiles(*plan, picture);
  return std::make_shared<const PreparedPicture>(weights_, std::move(plan), std::move(tiles));
}

std::int64_t Encoder::row_width() const {
  return weights_->spec.row_width();
}

std::int64_t Encoder::num_deepstack() const {
  return std::ssize(weights_->spec.branches);
}

const TowerSpec& Encoder::spec() const {
  return weights_->spec;
}

std::size_t Encoder::bytes() const {
  return weights_->bytes;
}

}  // namespace quire
