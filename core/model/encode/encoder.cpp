#include "core/model/encode/encoder.h"

#include "core/base/result.h"

namespace quire {

std::unique_ptr<Encoder> Encoder::open(const std::string& path, const EncoderOptions&) {
  throw StartupError(path + ": no towers are built in");
}

MediaLayout Encoder::layout(std::int32_t, std::int32_t, const PictureSettings&) const {
  return {};
}

std::shared_ptr<const PreparedMedia> Encoder::prepare(const Picture&, const PictureSettings&) const {
  return nullptr;
}

}  // namespace quire
