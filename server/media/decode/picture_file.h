// A picture's file: its format and size, read from its header, and its pixels. Pure functions; any thread.
// Invariants: pixels are decoded only after the size was checked; a truncated or damaged file is an error, never a
// crash; memory is bounded by the number of pixels, and by the file's own length where the format bounds their ratio.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "core/base/result.h"
#include "core/content/picture.h"

namespace quire {

enum class PictureFormat { kPng, kJpeg, kWebp, kGif };

struct PictureHead {
  PictureFormat format = PictureFormat::kPng;
  std::int32_t width = 0;  // size after the orientation was applied
  std::int32_t height = 0;
  int orientation = 1;  // EXIF's, from 1 to 8
};

struct PictureLimits {
  std::int64_t max_pixels = 64'000'000;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  bool as_stored = false;  // like llama.cpp: not turned upright, opacity ignored
};

// Refusals of pictures are 400s with one of these codes, by which they are counted.
inline constexpr const char* kUnknownFormat = "unsupported_image_format";
inline constexpr const char* kTooLargePicture = "image_too_large";
inline constexpr const char* kBrokenPicture = "invalid_image";
inline constexpr const char* kSlowPicture = "image_decoding_timeout";

// Reads no further than the header and EXIF's orientation. The error names a format that is not served.
Result<PictureHead> read_picture_head(std::string_view bytes, bool as_stored = false);
// Longer sides are refused: resizing takes time for each line.
inline constexpr std::int32_t kMostPictureSide = 65535;

// 400 for a picture of more pixels or a longer side.
Result<void> check_picture_size(const PictureHead& head, std::int64_t max_pixels);
// The pixels: upright by EXIF's orientation, transparency over white, gray and palettes as RGB, 16 bits cut to 8, the
// first frame of an animation.
Result<Picture> decode_picture(std::string_view bytes, const PictureLimits& limits);

}  // namespace quire
