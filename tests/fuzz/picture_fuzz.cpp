// Files of pictures, as bytes and inside data URLs: each is a picture of its header's size or a refusal.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/check.h"
#include "server/media/data_url.h"
#include "server/media/decode/picture_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quire;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const PictureLimits limits{1 << 20, std::chrono::steady_clock::now() + std::chrono::seconds(10)};
  const auto head = read_picture_head(bytes);
  const auto picture = decode_picture(bytes, limits);
  if (picture) {
    QUIRE_CHECK(head && head->width == picture->width && head->height == picture->height, "the header has the size");
    QUIRE_CHECK(picture->rgb.size() == std::size_t{3} * static_cast<std::size_t>(picture->width) *
                                           static_cast<std::size_t>(picture->height),
                "all pixels are there");
  } else {
    QUIRE_CHECK(picture.error().kind == ErrorKind::kInvalidRequest, "a refusal is the request's");
  }
  if (const auto decoded = decode_base64(bytes, 1 << 16)) QUIRE_CHECK(decoded->size() <= size, "base64 shrinks");
  if (is_data_url(bytes)) decode_data_url(bytes, 1 << 16);
  return 0;
}
