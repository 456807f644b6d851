#include "server/media/decode/picture_file.h"

#include <catch2/catch.hpp>
#include <random>

#include "server/media/decode/formats.h"
#include "tests/server/media/picture_files.h"

namespace quire::test {
namespace {

std::vector<std::uint8_t> rgb_of(const std::string& bytes) {
  const auto picture = decode_picture(bytes, {});
  INFO((picture ? "" : picture.error().message));
  REQUIRE(picture);
  const auto head = read_picture_head(bytes);
  REQUIRE(head);
  CHECK(head->width == picture->width);
  CHECK(head->height == picture->height);
  return picture->rgb;
}

Error refusal_of(const std::string& bytes, const PictureLimits& limits = {}) {
  const auto picture = decode_picture(bytes, limits);
  REQUIRE(!picture);
  CHECK(picture.error().kind == ErrorKind::kInvalidRequest);
  return picture.error();
}

using Bytes = std::vector<std::uint8_t>;

std::string change_size(std::string png, std::uint32_t width, std::uint32_t height) {
  for (int i = 0; i < 4; ++i) {
    png[static_cast<std::size_t>(16 + i)] = static_cast<char>(width >> (24 - 8 * i));
    png[static_cast<std::size_t>(20 + i)] = static_cast<char>(height >> (24 - 8 * i));
  }
  return png;
}

TEST_CASE("pictures of each format become the pixels that were written") {
  const Picture picture = some_picture(13, 9);
  CHECK(rgb_of(png_of(picture)) == picture.rgb);
  CHECK(rgb_of(png_of(13, 9, picture.rgb, {.interlaced = true})) == picture.rgb);
  Bytes rgba;
  for (std::size_t i = 0; i < picture.rgb.size(); i += 3)
    rgba.insert(rgba.end(), {picture.rgb[i], picture.rgb[i + 1], picture.rgb[i + 2], 255});
  CHECK(rgb_of(webp_of(13, 9, rgba)) == picture.rgb);
  for (const bool is_progressive : {false, true}) {
    const Bytes got = rgb_of(jpeg_of(16, 16, Bytes(16 * 16 * 3, 90), {.is_progressive = is_progressive}));
    CHECK(got == Bytes(16 * 16 * 3, 90));
  }
  const Bytes palette = {0, 0, 0, 10, 20, 30, 200, 100, 50, 255, 255, 255};
  for (const bool interlaced : {false, true}) {
    const Bytes indices = {0, 1, 2, 3, 1, 1, 2, 2, 3, 3, 0, 0, 0, 1, 0, 1, 2, 1, 0, 3};
    const Bytes got = rgb_of(gif_of(2, 10, indices, palette, {.interlaced = interlaced}));
    for (std::size_t i = 0; i < indices.size(); ++i) {
      for (std::size_t channel = 0; channel < 3; ++channel)
        CHECK(got[3 * i + channel] == palette[3 * indices[i] + channel]);
    }
  }
}

TEST_CASE("gray, palettes, 16 bits and inks become RGB of 8 bits") {
  CHECK(rgb_of(png_of(2, 1, {7, 200}, {.type = 0})) == Bytes{7, 7, 7, 200, 200, 200});
  CHECK(rgb_of(png_of(2, 1, {0x40}, {.type = 0, .depth = 1})) == Bytes{0, 0, 0, 255, 255, 255});
  CHECK(rgb_of(png_of(1, 1, {0x12, 0xFF, 0x34, 0x80, 0x56, 0x00}, {.depth = 16})) == Bytes{0x12, 0x34, 0x56});
  CHECK(rgb_of(png_of(2, 1, {1, 0}, {.type = 3, .palette = {1, 2, 3, 4, 5, 6}})) == Bytes{4, 5, 6, 1, 2, 3});
  CHECK(rgb_of(jpeg_of(8, 8, Bytes(64, 33), {.num_channels = 1})) == Bytes(192, 33));
  // Inverted inks: the paper shows through by a third of black, and no ink else.
  const Bytes gray = rgb_of(jpeg_of(8, 8, Bytes(256, 255), {.num_channels = 4}));
  CHECK(gray == Bytes(192, 255));
}

TEST_CASE("transparency is shown over white") {
  CHECK(rgb_of(png_of(3, 1, {10, 20, 30, 255, 10, 20, 30, 0, 0, 0, 0, 128}, {.type = 6})) ==
        Bytes{10, 20, 30, 255, 255, 255, 127, 127, 127});
  CHECK(rgb_of(png_of(2, 1, {100, 0, 100, 255}, {.type = 4})) == Bytes{255, 255, 255, 100, 100, 100});
  CHECK(rgb_of(png_of(2, 1, {0, 1}, {.type = 3, .palette = {1, 2, 3, 4, 5, 6}, .transparency = {0, 255}})) ==
        Bytes{255, 255, 255, 4, 5, 6});
  CHECK(rgb_of(webp_of(1, 1, {10, 20, 30, 0})) == Bytes{255, 255, 255});
  const Bytes palette = {0, 0, 0, 10, 20, 30};
  CHECK(rgb_of(gif_of(2, 1, {0, 1}, palette, {.transparent = 0})) == Bytes{255, 255, 255, 10, 20, 30});
  CHECK(rgb_of(gif_of(1, 1, {1}, palette, {.left = 1, .canvas_width = 2, .canvas_height = 1})) ==
        Bytes{255, 255, 255, 10, 20, 30});
  // A frame beyond its canvas is cut.
  CHECK(rgb_of(gif_of(2, 2, {1, 0, 0, 0}, palette, {.canvas_width = 1, .canvas_height = 1})) == Bytes{10, 20, 30});
}

TEST_CASE("pictures are turned as EXIF says") {
  const Bytes rows = {1, 2, 3, 4, 5, 6};  // three columns, two rows
  const std::array<std::pair<std::int32_t, Bytes>, 8> turned = {{{3, {1, 2, 3, 4, 5, 6}},
                                                                 {3, {3, 2, 1, 6, 5, 4}},
                                                                 {3, {6, 5, 4, 3, 2, 1}},
                                                                 {3, {4, 5, 6, 1, 2, 3}},
                                                                 {2, {1, 4, 2, 5, 3, 6}},
                                                                 {2, {4, 1, 5, 2, 6, 3}},
                                                                 {2, {6, 3, 5, 2, 4, 1}},
                                                                 {2, {3, 6, 2, 5, 1, 4}}}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string png = png_of(3, 2, rows, {.type = 0, .orientation = orientation});
    const auto& [width, expected] = turned[static_cast<std::size_t>(orientation - 1)];
    const Bytes got = rgb_of(png);
    CHECK(read_picture_head(png)->width == width);
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(got[3 * i] == expected[i]);
  }
  const std::string jpeg = jpeg_of(16, 8, Bytes(16 * 8 * 3, 10), {.orientation = 6});
  CHECK(read_picture_head(jpeg)->width == 8);
  CHECK(exif_orientation("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0") == 1);
}

TEST_CASE("other formats are refused by name") {
  const auto named = [](std::string_view bytes, std::string_view name) {
    const Error error = refusal_of(std::string(bytes));
    CHECK(error.code == kUnknownFormat);
    CHECK(error.message.find(name) != std::string::npos);
  };
  named("BM\x36\0\0\0", "BMP");
  named(std::string_view("II*\0abcd", 8), "TIFF");
  named(std::string_view("\0\0\0\x1C"
                         "ftypheic",
                         12),
        "HEIC");
  named(std::string_view("\0\0\0\x1C"
                         "ftypavif",
                         12),
        "AVIF");
  named("%PDF-1.7", "PDF");
  named("<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG");
  named("\xEF\xBB\xBF\r\n  <SVG/>", "SVG");
  named("<!-- drawn by hand -->\n<svg/>", "SVG");
  named("<!DOCTYPE svg PUBLIC '-//W3C//DTD SVG 1.1//EN'>", "SVG");
  named("<!doctype html>", "HTML");
  named("hello", "unknown");
  named("\n", "unknown");
  CHECK(refusal_of("").code == kBrokenPicture);
  const std::string webp = webp_of(3, 2, Bytes(24, 255));
  CHECK(refusal_of(webp.substr(0, 20)).message.find("header") != std::string::npos);
}

TEST_CASE("a picture's size is checked before anything is decoded") {
  const std::string png = png_of(some_picture(4, 4));
  CHECK(refusal_of(png, {.max_pixels = 15}).code == kTooLargePicture);
  CHECK(refusal_of(change_size(png, 100'000, 100'000)).code == kTooLargePicture);
  CHECK(refusal_of(change_size(png, 70'000, 1)).code == kTooLargePicture);
  // A header that promises more than its file can hold takes no memory for it.
  CHECK(refusal_of(change_size(png, 7000, 7000)).code == kBrokenPicture);
  CHECK(refusal_of(change_size(png, 0, 10)).code == kBrokenPicture);
  std::string jpeg = jpeg_of(16, 16, Bytes(16 * 16 * 3, 90));
  const std::size_t frame = jpeg.find("\xFF\xC0");
  REQUIRE(frame != std::string::npos);
  for (const std::size_t at : {frame + 5, frame + 7})
    jpeg[at] = '\x1F';
  CHECK(refusal_of(jpeg).code == kBrokenPicture);
  std::string gif = gif_of(2, 1, {0, 1}, {0, 0, 0, 1, 1, 1});
  gif[7] = gif[9] = '\x7F';
  CHECK(refusal_of(gif).code == kTooLargePicture);
}

TEST_CASE("decoding ends at its time limit") {
  const std::string png = png_of(some_picture(40, 40));
  CHECK(refusal_of(png, {.deadline = {}}).code == kSlowPicture);
  CHECK(refusal_of(jpeg_of(16, 16, Bytes(768, 9)), {.deadline = {}}).code == kSlowPicture);
  CHECK(refusal_of(webp_of(8, 8, Bytes(256, 9)), {.deadline = {}}).code == kSlowPicture);
  CHECK(refusal_of(gif_of(2, 1, {0, 1}, {0, 0, 0, 1, 1, 1}), {.deadline = {}}).code == kSlowPicture);
}

std::vector<std::string> seeds() {
  const Picture picture = some_picture(24, 17);
  Bytes rgba(24 * 17 * 4, 77);
  rgba[3] = 0;
  Bytes indices(24 * 17, 1);
  return {png_of(picture),
          png_of(24, 17, picture.rgb, {.interlaced = true, .orientation = 5}),
          png_of(24, 17, Bytes(24 * 17, 1), {.type = 3, .palette = {1, 2, 3, 4, 5, 6}, .transparency = {9}}),
          jpeg_of(24, 17, picture.rgb, {.orientation = 3}),
          jpeg_of(24, 17, picture.rgb, {.is_progressive = true}),
          webp_of(24, 17, rgba),
          gif_of(24, 17, indices, {0, 0, 0, 9, 9, 9}, {.interlaced = true, .transparent = 1})};
}

TEST_CASE("files that end too early are refused, whatever byte is the last") {
  for (const std::string& seed : seeds()) {
    for (std::size_t size = 0; size<seed.size(); size += seed.size()> 400 ? 13 : 1) {
      const auto picture = decode_picture(seed.substr(0, size), {});
      if (!picture) {
        CHECK(picture.error().kind == ErrorKind::kInvalidRequest);
        continue;
      }
      CHECK(size > seed.size() / 2);  // all pixels are there: only an end mark is missing
    }
  }
}

TEST_CASE("damaged files are pictures or refusals") {
  std::mt19937 random(7);
  for (const std::string& seed : seeds()) {
    for (int i = 0; i < 400; ++i) {
      std::string damaged = seed;
      const std::size_t num_changes = 1 + random() % 8;
      for (std::size_t j = 0; j < num_changes; ++j)
        damaged[random() % damaged.size()] = static_cast<char>(random());
      if (random() % 4 == 0) damaged.erase(random() % damaged.size(), random() % 32);
      const auto picture = decode_picture(damaged, {.max_pixels = 1 << 20});
      if (picture) {
        CHECK(std::cmp_equal(picture->rgb.size(), std::int64_t{picture->width} * picture->height * 3));
      } else {
        CHECK(picture.error().kind == ErrorKind::kInvalidRequest);
      }
    }
  }
}

}  // namespace
}  // namespace quire::test
