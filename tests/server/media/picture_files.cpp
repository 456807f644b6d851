#include "tests/server/media/picture_files.h"

#include <cstdio>

#include <gif_lib.h>
#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>

#include <cstdlib>

#include "server/api/common/encodings.h"

namespace quire::test {

namespace {

std::string exif_of(int orientation) {
  std::string exif("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18);
  exif += static_cast<char>(orientation);
  return exif + std::string(7, '\0');
}

void append_png(png_structp png, png_bytep bytes, std::size_t count) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<const char*>(bytes), count);
}

int append_gif(GifFileType* gif, const GifByteType* bytes, int count) {
  static_cast<std::string*>(gif->UserData)
      ->append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
  return count;
}

}  // namespace

Picture some_picture(std::int32_t width, std::int32_t height) {
  Picture picture{width, height, {}};
  for (std::int32_t i = 0; i < width * height * 3; ++i)
    picture.rgb.push_back(static_cast<std::uint8_t>((i * 37 + i / 7) & 0xFF));
  return picture;
}

std::string png_of(std::int32_t width, std::int32_t height, const std::vector<std::uint8_t>& rows,
                   const PngOptions& options) {
  std::string out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &out, &append_png, nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), options.depth,
               options.type, options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> colors;
  for (std::size_t i = 0; i + 2 < options.palette.size(); i += 3)
    colors.push_back({options.palette[i], options.palette[i + 1], options.palette[i + 2]});
  if (!colors.empty()) png_set_PLTE(png, info, colors.data(), static_cast<int>(colors.size()));
  if (!options.transparency.empty())
    png_set_tRNS(png, info, options.transparency.data(), static_cast<int>(options.transparency.size()), nullptr);
  std::string exif = exif_of(options.orientation);
  if (options.orientation > 0)
    png_set_eXIf_1(png, info, static_cast<png_uint_32>(exif.size()), reinterpret_cast<png_bytep>(exif.data()));
  png_write_info(png, info);
  const std::size_t row_bytes = rows.size() / static_cast<std::size_t>(height);
  std::vector<png_bytep> pointers;
  for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y)
    pointers.push_back(const_cast<png_bytep>(rows.data()) + y * row_bytes);
  png_write_image(png, pointers.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return out;
}

std::string png_of(const Picture& picture) {
  return png_of(picture.width, picture.height, picture.rgb);
}

std::string jpeg_of(std::int32_t width, std::int32_t height, const std::vector<std::uint8_t>& rows,
                    const JpegOptions& options) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* bytes = nullptr;
  unsigned long count = 0;
  jpeg_mem_dest(&jpeg, &bytes, &count);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.input_components = options.num_channels;
  jpeg.in_color_space = options.num_channels == 1 ? JCS_GRAYSCALE : options.num_channels == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 100, TRUE);
  if (options.is_progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  const std::string exif = std::string("Exif\0\0", 6) + exif_of(options.orientation);
  if (options.orientation > 0)
    jpeg_write_marker(&jpeg, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  const std::size_t row_bytes = rows.size() / static_cast<std::size_t>(height);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(rows.data()) + jpeg.next_scanline * row_bytes;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string out(reinterpret_cast<const char*>(bytes), count);
  std::free(bytes);
  return out;
}

std::string webp_of(std::int32_t width, std::int32_t height, const std::vector<std::uint8_t>& rgba) {
  std::uint8_t* bytes = nullptr;
  const std::size_t count = WebPEncodeLosslessRGBA(rgba.data(), width, height, 4 * width, &bytes);
  std::string out(reinterpret_cast<const char*>(bytes), count);
  WebPFree(bytes);
  return out;
}

std::string gif_of(std::int32_t width, std::int32_t height, std::vector<std::uint8_t> indices,
                   const std::vector<std::uint8_t>& palette, const GifOptions& options) {
  std::string out;
  GifFileType* const gif = EGifOpen(&out, &append_gif, nullptr);
  std::vector<GifColorType> colors;
  for (std::size_t i = 0; i + 2 < palette.size(); i += 3)
    colors.push_back({palette[i], palette[i + 1], palette[i + 2]});
  ColorMapObject* const map = GifMakeMapObject(static_cast<int>(colors.size()), colors.data());
  EGifSetGifVersion(gif, true);
  EGifPutScreenDesc(gif, options.canvas_width > 0 ? options.canvas_width : width,
                    options.canvas_height > 0 ? options.canvas_height : height, 8, 0, map);
  const GraphicsControlBlock control{DISPOSAL_UNSPECIFIED, false, 0, options.transparent};
  GifByteType block[4];
  EGifGCBToExtension(&control, block);
  EGifPutExtension(gif, GRAPHICS_EXT_FUNC_CODE, 4, block);
  EGifPutImageDesc(gif, options.left, options.top, width, height, options.interlaced, nullptr);
  std::vector<int> order;
  if (options.interlaced) {
    for (const auto& [first, step] : {std::pair(0, 8), std::pair(4, 8), std::pair(2, 4), std::pair(1, 2)}) {
      for (int y = first; y < height; y += step)
        order.push_back(y);
    }
  } else {
    for (int y = 0; y < height; ++y)
      order.push_back(y);
  }
  for (const int y : order)
    EGifPutLine(gif, indices.data() + static_cast<std::ptrdiff_t>(y) * width, width);
  GifFreeMapObject(map);
  EGifCloseFile(gif, nullptr);
  return out;
}

std::string base64_of(const std::string& bytes) {
  return encode_base64(bytes);
}

std::string data_url_of(const std::string& bytes) {
  return "data:image/png;base64," + base64_of(bytes);
}

}  // namespace quire::test
