#include <png.h>

#include <random>

#include "kernels/check.h"
#include "server/api/common/encodings.h"
#include "server/cli/bench/random_images.h"

namespace quire::bench {

namespace {

constexpr std::int32_t kSquare = 4;                // pixels on a side
constexpr std::size_t kSquareBytes = 3 * kSquare;  // in a row

void draw_row(std::mt19937_64& random, std::vector<std::uint8_t>& row) {
  std::uint64_t color = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (i % kSquareBytes == 0) color = random();
    row[i] = static_cast<std::uint8_t>(color >> (8 * (i % 3)));
  }
}

// The pixels: every kSquare-th line is drawn, those below repeat it.
std::vector<std::uint8_t> random_pixels(const ImageSize& size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto row_bytes = static_cast<std::size_t>(size.width) * 3;
  std::vector<std::uint8_t> row(row_bytes);
  std::vector<std::uint8_t> rgb;
  rgb.reserve(row_bytes * static_cast<std::size_t>(size.height));
  for (std::int32_t y = 0; y < size.height; ++y) {
    if (y % kSquare == 0) draw_row(random, row);
    rgb.insert(rgb.end(), row.begin(), row.end());
  }
  return rgb;
}

}  // namespace

std::string random_png(const ImageSize& size, std::uint64_t seed) {
  const std::vector<std::uint8_t> rgb = random_pixels(size, seed);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(size.width);
  image.height = static_cast<png_uint_32>(size.height);
  image.format = PNG_FORMAT_RGB;
  image.flags = PNG_IMAGE_FLAG_FAST;
  png_alloc_size_t num_bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(num_bytes, '\0');
  const int is_written = png_image_write_to_memory(&image, file.data(), &num_bytes, 0, rgb.data(), 0, nullptr);
  QUIRE_CHECK(is_written != 0, "libpng writes an image into a buffer of the greatest size");
  file.resize(num_bytes);
  return file;
}

std::string random_image_url(const ImageSize& size, std::uint64_t seed) {
  return "data:image/png;base64," + encode_base64(random_png(size, seed));
}

}  // namespace quire::bench
