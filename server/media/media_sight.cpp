#include "server/media/media_sight.h"

#include <utility>

#include "core/model/encode/encoder.h"
#include "core/model/encode/pictures/picture_sizes.h"
#include "core/model/encode/towers/tower_spec.h"

namespace quire {

std::shared_ptr<const MediaSight> sight_of(std::shared_ptr<const Encoder> encoder, std::string name,
                                           bool reads_as_stored) {
  auto sight = std::make_shared<MediaSight>();
  sight->name = std::move(name);
  sight->reads_as_stored = reads_as_stored;
  const PictureSpec& rules = encoder->spec().picture;
  sight->own_side = follows_pixels(rules.sizing) ? 0 : rules.image_size;
  sight->layout = [encoder](std::int32_t width, std::int32_t height, const PictureSettings& settings) {
    return encoder->layout(width, height, settings);
  };
  sight->prepare = [encoder](const Picture& picture, const PictureSettings& settings) {
    return encoder->prepare(picture, settings);
  };
  return sight;
}

}  // namespace quire
