#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "server/media/decode/formats.h"

namespace quire::decoding {

namespace {

constexpr std::size_t kSlice = 64 * 1024;  // bytes decoded between two checks of the time

struct DemuxerDeleter {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
using Demuxer = std::unique_ptr<WebPDemuxer, DemuxerDeleter>;

struct DecoderDeleter {
  void operator()(WebPIDecoder* decoder) const { WebPIDelete(decoder); }
};

WebPData data_of(std::string_view bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

Demuxer open(std::string_view bytes) {
  const WebPData data = data_of(bytes);
  WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
  Demuxer demuxer(WebPDemuxPartial(&data, &state));
  return state == WEBP_DEMUX_PARSE_ERROR ? nullptr : std::move(demuxer);
}

struct WebpFrame {
  std::int32_t width = 0;
  std::int32_t height = 0;
  bool has_alpha = false;
  std::vector<std::uint8_t> pixels;  // four bytes each with alpha, else three
};

Result<WebpFrame> decode_frame(const WebPData& data, const PictureLimits& limits) {
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0 || WebPGetFeatures(data.bytes, data.size, &config.input) != VP8_STATUS_OK)
    return broken("the WebP file is damaged");
  const std::int64_t num_pixels = std::int64_t{config.input.width} * config.input.height;
  if (num_pixels > limits.max_pixels) return broken("a frame of the WebP file is larger than its image");
  WebpFrame frame{config.input.width, config.input.height, config.input.has_alpha != 0, {}};
  const int num_channels = frame.has_alpha ? 4 : 3;
  frame.pixels.resize(static_cast<std::size_t>(num_pixels * num_channels));
  config.output.colorspace = frame.has_alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {frame.pixels.data(), frame.width * num_channels, frame.pixels.size()};
  const std::unique_ptr<WebPIDecoder, DecoderDeleter> decoder(WebPIDecode(nullptr, 0, &config));
  if (decoder == nullptr) return broken("the WebP file cannot be decoded");
  VP8StatusCode status = VP8_STATUS_SUSPENDED;
  for (std::size_t end = 0; status == VP8_STATUS_SUSPENDED && end < data.size;) {
    end = std::min(data.size, end + kSlice);
    status = WebPIUpdate(decoder.get(), data.bytes, end);
    if (is_late(limits)) return too_slow();
  }
  if (status == VP8_STATUS_SUSPENDED) return broken("the WebP file ends too early");
  if (status != VP8_STATUS_OK) return broken("the WebP file is damaged");
  return frame;
}

// The frame at its place on a canvas; the canvas is transparent elsewhere, and therefore white.
Picture paint(const WebpFrame& frame, const WebPIterator& place, const RawSize& canvas, bool is_opaque) {
  Picture picture{static_cast<std::int32_t>(canvas.width), static_cast<std::int32_t>(canvas.height), {}};
  picture.rgb.resize(static_cast<std::size_t>(canvas.width * canvas.height) * 3, 255);
  const std::size_t num_channels = frame.has_alpha ? 4 : 3;
  for (std::int32_t y = 0; y < frame.height && y + place.y_offset < picture.height; ++y) {
    const std::uint8_t* source = frame.pixels.data() + static_cast<std::size_t>(y * frame.width) * num_channels;
    const std::int64_t first = std::int64_t{y + place.y_offset} * picture.width + place.x_offset;
    std::uint8_t* target = picture.rgb.data() + 3 * first;
    const std::int32_t width = std::min(frame.width, picture.width - place.x_offset);
    for (std::int32_t x = 0; x < width; ++x, source += num_channels, target += 3) {
      for (int channel = 0; channel < 3; ++channel)
        target[channel] = frame.has_alpha && !is_opaque ? over_white(source[channel], source[3]) : source[channel];
    }
  }
  return picture;
}

}  // namespace

Result<RawSize> webp_size(std::string_view bytes) {
  const Demuxer demuxer = open(bytes);
  if (demuxer == nullptr) return broken("the WebP file's header is damaged or cut");
  const RawSize size{WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH),
                     WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT)};
  constexpr std::int64_t kUnknown = 0xFFFFFFFF;  // the file ends before the size
  if (size.width == kUnknown) return broken("the WebP file ends in its header");
  return size;
}

std::string_view webp_exif(std::string_view bytes) {
  const Demuxer demuxer = open(bytes);
  WebPChunkIterator chunk{};
  std::string_view exif;
  if (demuxer != nullptr && WebPDemuxGetChunk(demuxer.get(), "EXIF", 1, &chunk) != 0)
    exif = {reinterpret_cast<const char*>(chunk.chunk.bytes), chunk.chunk.size};
  WebPDemuxReleaseChunkIterator(&chunk);
  // Some writers put JPEG's mark before it.
  constexpr std::string_view kMark{"Exif\0\0", 6};
  return exif.starts_with(kMark) ? exif.substr(kMark.size()) : exif;
}

Result<Picture> decode_webp(std::string_view bytes, const PictureLimits& limits) {
  const Demuxer demuxer = open(bytes);
  const auto canvas = webp_size(bytes);
  if (!canvas) return tl::make_unexpected(canvas.error());
  WebPIterator place{};
  Result<Picture> picture = broken("the WebP file ends before its first frame");
  if (WebPDemuxGetFrame(demuxer.get(), 1, &place) != 0) {
    auto frame = decode_frame(place.fragment, limits);
    const bool is_whole =
        frame && !frame->has_alpha && frame->width == canvas->width && frame->height == canvas->height;
    if (!frame) {
      picture = tl::make_unexpected(frame.error());
    } else if (is_whole) {
      picture = Picture{frame->width, frame->height, std::move(frame->pixels)};
    } else {
      picture = paint(*frame, place, *canvas, limits.as_stored);
    }
  }
  WebPDemuxReleaseIterator(&place);
  return picture;
}

}  // namespace quire::decoding
