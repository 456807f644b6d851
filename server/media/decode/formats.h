// The decoders of the formats, behind decode_picture(), and EXIF's orientation. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/content/picture.h"
#include "server/media/decode/picture_file.h"

namespace quire::decoding {

// Width and height as the header has them. Errors: the header is cut or impossible.
struct RawSize {
  std::int64_t width = 0;
  std::int64_t height = 0;
};
Result<RawSize> png_size(std::string_view bytes);
Result<RawSize> jpeg_size(std::string_view bytes);
Result<RawSize> webp_size(std::string_view bytes);
Result<RawSize> gif_size(std::string_view bytes);

// EXIF's block inside the file, as TIFF; empty: none.
std::string_view png_exif(std::string_view bytes);
std::string_view jpeg_exif(std::string_view bytes);
std::string_view webp_exif(std::string_view bytes);

// The picture is not turned upright, and has the size in the header.
Result<Picture> decode_png(std::string_view bytes, const PictureLimits& limits);
Result<Picture> decode_jpeg(std::string_view bytes, const PictureLimits& limits);
Result<Picture> decode_webp(std::string_view bytes, const PictureLimits& limits);
Result<Picture> decode_gif(std::string_view bytes, const PictureLimits& limits);

tl::unexpected<Error> broken(std::string why);
tl::unexpected<Error> too_slow();
inline bool is_late(const PictureLimits& limits) {
  return std::chrono::steady_clock::now() > limits.deadline;
}

// `value` with this opacity over white, rounded as Pillow's paste() rounds.
inline std::uint8_t over_white(std::uint32_t value, std::uint32_t alpha) {
  const std::uint32_t sum = value * alpha + 255U * (255U - alpha) + 128U;
  return static_cast<std::uint8_t>((sum + (sum >> 8)) >> 8);
}

// Big-endian numbers of a file; the caller has checked that they are there.
std::uint32_t big16(std::string_view bytes, std::size_t at);
std::uint32_t big32(std::string_view bytes, std::size_t at);
std::uint32_t little16(std::string_view bytes, std::size_t at);

}  // namespace quire::decoding

namespace quire {

// `tiff`: EXIF's block from its byte order on. From 1 to 8; 1 where it has none or is damaged.
int exif_orientation(std::string_view tiff);
// Whether turning exchanges width and height.
inline bool swaps_sides(int orientation) {
  return orientation >= 5;
}
Picture turn_upright(Picture picture, int orientation);

}  // namespace quire
