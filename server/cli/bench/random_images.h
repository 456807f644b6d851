// Random images of a load run: PNG files that the bench makes itself, as data URLs. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace quire::bench {

struct ImageSize {
  std::int32_t width = 0;
  std::int32_t height = 0;
  bool operator==(const ImageSize&) const = default;
};

// "256x256,720x1280": width and height of each size. Errors: anything else, or a side above kMostImageSide.
inline constexpr std::int32_t kMostImageSide = 16384;
Result<std::vector<ImageSize>> parse_image_sizes(const std::string& text);

// Squares of random colors, so that the file has about as many bytes as a photograph's JPEG. The same seed gives the
// same image. Module: `images`.
std::string random_png(const ImageSize& size, std::uint64_t seed);
std::string random_image_url(const ImageSize& size, std::uint64_t seed);

}  // namespace quire::bench
