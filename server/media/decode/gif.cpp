#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "server/media/decode/formats.h"

namespace quire::decoding {

namespace {

constexpr int kOpaque = -1;
// Upper bound of the pixels that one byte of LZW codes can encode.
constexpr std::int64_t kMostRatio = 4096;
constexpr std::array<std::array<int, 2>, 4> kPasses{{{0, 8}, {4, 8}, {2, 4}, {1, 2}}};  // first row and step

struct Input {
  std::string_view bytes;
  std::size_t at = 0;
};

int read_bytes(GifFileType* gif, GifByteType* out, int count) {
  auto& input = *static_cast<Input*>(gif->UserData);
  const std::size_t size = std::min(input.bytes.size() - input.at, static_cast<std::size_t>(std::max(count, 0)));
  std::memcpy(out, input.bytes.data() + input.at, size);
  input.at += size;
  return static_cast<int>(size);
}

struct GifDeleter {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using Gif = std::unique_ptr<GifFileType, GifDeleter>;

// Skips to the first frame: the index of its transparent color, or kOpaque. nullopt: there is none.
std::optional<int> find_frame(GifFileType* gif) {
  int transparent = kOpaque;
  GifRecordType type = UNDEFINED_RECORD_TYPE;
  while (DGifGetRecordType(gif, &type) != GIF_ERROR) {
    if (type == TERMINATE_RECORD_TYPE) return std::nullopt;
    if (type == IMAGE_DESC_RECORD_TYPE) return transparent;
    if (type != EXTENSION_RECORD_TYPE) continue;
    int code = 0;
    GifByteType* block = nullptr;
    if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) return std::nullopt;
    GraphicsControlBlock control{};
    if (code == GRAPHICS_EXT_FUNC_CODE && block != nullptr && block[0] >= 4 &&
        DGifExtensionToGCB(block[0], block + 1, &control) != GIF_ERROR)
      transparent = control.TransparentColor;
    while (block != nullptr) {
      if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) return std::nullopt;
    }
  }
  return std::nullopt;
}

struct Frame {
  const GifImageDesc* place = nullptr;
  const ColorMapObject* colors = nullptr;
  int transparent = kOpaque;
};

void take_row(const Frame& frame, const std::vector<GifPixelType>& row, std::int32_t y, Picture& picture) {
  const std::int64_t line = std::int64_t{frame.place->Top} + y;
  if (line >= picture.height) return;
  for (std::int32_t x = 0; x < frame.place->Width && frame.place->Left + x < picture.width; ++x) {
    const int index = row[static_cast<std::size_t>(x)];
    if (index == frame.transparent || index >= frame.colors->ColorCount) continue;
    const GifColorType& color = frame.colors->Colors[index];
    const std::int64_t at = 3 * (line * picture.width + frame.place->Left + x);
    std::uint8_t* const target = picture.rgb.data() + at;
    target[0] = color.Red;
    target[1] = color.Green;
    target[2] = color.Blue;
  }
}

Result<void> read_rows(GifFileType* gif, const Frame& frame, const PictureLimits& limits, Picture& picture) {
  std::vector<GifPixelType> row(static_cast<std::size_t>(frame.place->Width));
  const bool is_interlaced = frame.place->Interlace;
  for (std::size_t pass = 0; pass < (is_interlaced ? kPasses.size() : 1); ++pass) {
    const std::int32_t step = is_interlaced ? kPasses[pass][1] : 1;
    for (std::int32_t y = is_interlaced ? kPasses[pass][0] : 0; y < frame.place->Height; y += step) {
      if (DGifGetLine(gif, row.data(), frame.place->Width) == GIF_ERROR)
        return broken("the GIF file is damaged or ends too early");
      take_row(frame, row, y, picture);
      if (is_late(limits)) return too_slow();
    }
  }
  return {};
}

}  // namespace

Result<RawSize> gif_size(std::string_view bytes) {
  if (bytes.size() < 13) return broken("the GIF file ends in its header");
  return RawSize{little16(bytes, 6), little16(bytes, 8)};
}

Result<Picture> decode_gif(std::string_view bytes, const PictureLimits& limits) {
  Input input{bytes};
  const Gif gif(DGifOpen(&input, &read_bytes, nullptr));
  if (gif == nullptr) return broken("the GIF file's header is damaged or cut");
  const auto transparent = find_frame(gif.get());
  if (!transparent || DGifGetImageDesc(gif.get()) == GIF_ERROR)
    return broken("the GIF file ends before its first frame");
  const Frame frame{&gif->Image, gif->Image.ColorMap != nullptr ? gif->Image.ColorMap : gif->SColorMap, *transparent};
  const std::int64_t num_pixels = std::int64_t{gif->SWidth} * gif->SHeight;
  const std::int64_t num_decoded = std::int64_t{frame.place->Width} * frame.place->Height;
  if (frame.place->Width < 1 || frame.place->Height < 1 || frame.colors == nullptr || num_decoded > limits.max_pixels)
    return broken("the GIF file's first frame has no pixels, no colors or an impossible size");
  if (num_decoded > kMostRatio * std::ssize(bytes)) return broken("the GIF file is too short for its size");
  Picture picture{gif->SWidth, gif->SHeight, {}};
  picture.rgb.resize(static_cast<std::size_t>(num_pixels) * 3, 255);
  if (const auto read = read_rows(gif.get(), frame, limits, picture); !read) return tl::make_unexpected(read.error());
  return picture;
}

}  // namespace quire::decoding
