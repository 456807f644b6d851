// Replaces the decoders in a build without the module `images`: every picture is refused.
#include "server/media/decode/picture_file.h"
#include "server/modules/modules.h"

namespace quire {

namespace {

tl::unexpected<Error> images_left_out() {
  return invalid("reading images " + left_out(Module::kImages), "", kUnknownFormat);
}

}  // namespace

Result<PictureHead> read_picture_head(std::string_view, bool) {
  return images_left_out();
}

Result<void> check_picture_size(const PictureHead&, std::int64_t) {
  return images_left_out();
}

Result<Picture> decode_picture(std::string_view, const PictureLimits&) {
  return images_left_out();
}

}  // namespace quire
