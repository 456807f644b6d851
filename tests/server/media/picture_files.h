// Files of pictures that tests make with the formats' own libraries. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/content/picture.h"

namespace quire::test {

// Pixels that differ everywhere.
Picture some_picture(std::int32_t width, std::int32_t height);

// `type`: libpng's color type, with rows of its samples of `depth` bits.
struct PngOptions {
  int type = 2;  // RGB
  int depth = 8;
  bool interlaced = false;
  int orientation = 0;                          // 0: no EXIF
  std::vector<std::uint8_t> palette = {};       // three bytes per entry
  std::vector<std::uint8_t> transparency = {};  // alpha of each palette entry
};
// `row_bytes`: the packed samples, row after row.
std::string png_of(std::int32_t width, std::int32_t height, const std::vector<std::uint8_t>& rows,
                   const PngOptions& options = {});
std::string png_of(const Picture& picture);

struct JpegOptions {
  int num_channels = 3;  // 1: gray, 4: inks, as Adobe writes them
  bool is_progressive = false;
  int orientation = 0;
};
// `rows`: samples of all channels.
std::string jpeg_of(std::int32_t width, std::int32_t height, const std::vector<std::uint8_t>& rows,
                    const JpegOptions& options = {});

// Lossless. `rows`: of four bytes.
std::string webp_of(std::int32_t width, std::int32_t height, const std::vector<std::uint8_t>& rgba);

struct GifOptions {
  bool interlaced = false;
  int transparent = -1;
  int left = 0;  // the frame on its canvas
  int top = 0;
  int canvas_width = 0;  // 0: the frame's
  int canvas_height = 0;
};
// `palette`: three bytes each, of a number of colors that is a power of two.
std::string gif_of(std::int32_t width, std::int32_t height, std::vector<std::uint8_t> indices,
                   const std::vector<std::uint8_t>& palette, const GifOptions& options = {});

std::string base64_of(const std::string& bytes);
std::string data_url_of(const std::string& bytes);

}  // namespace quire::test
