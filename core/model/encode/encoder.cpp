#include "core/model/encode/encoder.h"

#include <fmt/core.h>

#include "core/base/result.h"
#include "core/model/encode/picture_plan.h"
#include "core/model/encode/tower_run.h"
#include "kernels/check.h"

namespace quire {

PreparedMedia::PreparedMedia(std::shared_ptr<const PicturePlan> plan, std::vector<Picture> tiles)
    : plan_(std::move(plan)), tiles_(std::move(tiles)) {}

std::size_t PreparedMedia::bytes() const {
  std::size_t count = 0;
  for (const Picture& tile : tiles_)
    count += tile.rgb.size();
  return count;
}

EncoderRun::EncoderRun(std::unique_ptr<TowerRun> run) : run_(std::move(run)) {}
EncoderRun::~EncoderRun() = default;
std::int64_t EncoderRun::work_left() const {
  return run_->work_left();
}
void EncoderRun::advance(std::int64_t work, Backend& backend) {
  run_->advance(work, backend);
}
std::span<const float> EncoderRun::rows() const {
  return run_->rows();
}
std::int64_t EncoderRun::num_rows() const {
  return run_->num_rows();
}
std::size_t EncoderRun::bytes() const {
  return run_->bytes();
}

std::unique_ptr<Encoder> Encoder::open(const std::string& path, const EncoderOptions& options) {
  MmprojFile file = MmprojFile::open(path);
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

std::shared_ptr<const PreparedMedia> Encoder::prepare(const Picture& picture, const PictureSettings& settings) const {
  auto plan =
      std::make_shared<const PicturePlan>(plan_picture(weights_->spec, {picture.width, picture.height}, settings));
  std::vector<Picture> tiles = cut_tiles(*plan, picture);
  return std::make_shared<const PreparedMedia>(std::move(plan), std::move(tiles));
}

std::unique_ptr<EncoderRun> Encoder::start(std::shared_ptr<const PreparedMedia> media) const {
  return std::make_unique<EncoderRun>(std::make_unique<TowerRun>(weights_, std::move(media)));
}

std::int64_t Encoder::row_width() const {
  return weights_->spec.text_width * (num_deepstack() + 1);
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
