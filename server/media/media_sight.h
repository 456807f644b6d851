// MediaSight: a model's handling of pictures, as functions. Immutable; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/model/encode/media_layout.h"

namespace quire {

struct Picture;
class Encoder;
class PreparedMedia;

struct MediaSight {
  bool reads_as_stored = false;  // see PictureLimits
  std::int32_t own_side = 0;     // fixed side of its pictures or tiles; 0: limits of pixels set the size
  std::string name;              // equal names give equal bytes for equal pictures and settings
  std::function<MediaLayout(std::int32_t width, std::int32_t height, const PictureSettings&)> layout;
  std::function<std::shared_ptr<const PreparedMedia>(const Picture&, const PictureSettings&)> prepare;
};

// `name`: the encoder's file and the options it was opened with.
std::shared_ptr<const MediaSight> sight_of(std::shared_ptr<const Encoder> encoder, std::string name,
                                           bool reads_as_stored);

}  // namespace quire
