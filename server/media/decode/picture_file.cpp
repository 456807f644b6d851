#include "server/media/decode/picture_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "server/media/decode/formats.h"

namespace quire {

namespace {

using namespace decoding;

struct Signature {
  std::size_t at;
  std::string_view bytes;
  std::string_view name;
};

using std::string_view_literals::operator""sv;

constexpr std::array kForeign = {
    Signature{0, "BM"sv, "BMP"},
    Signature{0, "II*\0"sv, "TIFF"},
    Signature{0, "MM\0*"sv, "TIFF"},
    Signature{0, "\0\0\1\0"sv, "ICO"},
    Signature{0, "%PDF"sv, "PDF"},
    Signature{0, "8BPS"sv, "PSD"},
    Signature{4, "ftypavif"sv, "AVIF"},
    Signature{4, "ftypavis"sv, "AVIF"},
    Signature{4, "ftyphe"sv, "HEIC"},
    Signature{4, "ftypmif1"sv, "HEIF"},
    Signature{4, "ftypmsf1"sv, "HEIF"},
    Signature{4, "ftyp"sv, "MP4"},
    Signature{0, "\xFF\x0A"sv, "JPEG XL"},
    Signature{0, "\0\0\0\x0CJXL "sv, "JPEG XL"},
    Signature{0, "\0\0\0\x0CjP  "sv, "JPEG 2000"},
    Signature{0, "\xFF\x4F\xFF\x51"sv, "JPEG 2000"},
    Signature{0, "\x1A\x45\xDF\xA3"sv, "Matroska or WebM"},
    Signature{0, "PK\3\4"sv, "ZIP"},
    Signature{0, "qoif"sv, "QOI"},
};

// Text formats begin so, in lower case, after a byte order mark and white space.
constexpr std::array kTexts = {
    Signature{0, "<svg"sv, "SVG"},
    Signature{0, "<!doctype svg"sv, "SVG"},
    Signature{0, "<?xml"sv, "SVG or other XML"},
    Signature{0, "<!--"sv, "SVG or other XML"},
    Signature{0, "<!doctype"sv, "HTML"},
    Signature{0, "<html"sv, "HTML"},
};

bool has(std::string_view bytes, std::size_t at, std::string_view text) {
  return bytes.size() >= at + text.size() && bytes.substr(at, text.size()) == text;
}

std::string text_start(std::string_view bytes) {
  constexpr std::size_t kLongest = 16;
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  bytes.remove_prefix(std::min(bytes.find_first_not_of(" \t\r\n"), bytes.size()));
  std::string text(bytes.substr(0, kLongest));
  for (char& c : text)
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

Result<PictureFormat> format_of(std::string_view bytes) {
  if (has(bytes, 0, "\x89PNG\r\n\x1A\n"sv)) return PictureFormat::kPng;
  if (has(bytes, 0, "\xFF\xD8\xFF"sv)) return PictureFormat::kJpeg;
  if (has(bytes, 0, "RIFF"sv) && has(bytes, 8, "WEBP"sv)) return PictureFormat::kWebp;
  if (has(bytes, 0, "GIF87a"sv) || has(bytes, 0, "GIF89a"sv)) return PictureFormat::kGif;
  if (bytes.empty()) return broken("the image is empty: it has no bytes");
  const auto refused = [](std::string_view name) {
    return invalid(fmt::format("the image is {}; PNG, JPEG, WebP and GIF are read", name), "", kUnknownFormat);
  };
  for (const Signature& each : kForeign) {
    if (has(bytes, each.at, each.bytes)) return refused(each.name);
  }
  const std::string text = text_start(bytes);
  for (const Signature& each : kTexts) {
    if (text.starts_with(each.bytes)) return refused(each.name);
  }
  return refused("an unknown format");
}

Result<RawSize> raw_size(PictureFormat format, std::string_view bytes) {
  switch (format) {
    case PictureFormat::kPng: return png_size(bytes);
    case PictureFormat::kJpeg: return jpeg_size(bytes);
    case PictureFormat::kWebp: return webp_size(bytes);
    case PictureFormat::kGif: return gif_size(bytes);
  }
  return broken("the image has an unknown format");
}

std::string_view exif_of(PictureFormat format, std::string_view bytes) {
  switch (format) {
    case PictureFormat::kPng: return png_exif(bytes);
    case PictureFormat::kJpeg: return jpeg_exif(bytes);
    case PictureFormat::kWebp: return webp_exif(bytes);
    case PictureFormat::kGif: break;
  }
  return {};
}

Result<Picture> decode_format(PictureFormat format, std::string_view bytes, const PictureLimits& limits) {
  switch (format) {
    case PictureFormat::kPng: return decode_png(bytes, limits);
    case PictureFormat::kJpeg: return decode_jpeg(bytes, limits);
    case PictureFormat::kWebp: return decode_webp(bytes, limits);
    case PictureFormat::kGif: return decode_gif(bytes, limits);
  }
  return broken("the image has an unknown format");
}

}  // namespace

Result<PictureHead> read_picture_head(std::string_view bytes, bool as_stored) {
  const auto format = format_of(bytes);
  if (!format) return tl::make_unexpected(format.error());
  const auto size = raw_size(*format, bytes);
  if (!size) return tl::make_unexpected(size.error());
  constexpr std::int64_t kMostSide = 1 << 30;
  if (size->width < 1 || size->height < 1 || size->width > kMostSide || size->height > kMostSide)
    return broken(fmt::format("the image's header has an impossible size, {} x {}", size->width, size->height));
  PictureHead head{*format, static_cast<std::int32_t>(size->width), static_cast<std::int32_t>(size->height),
                   as_stored ? 1 : exif_orientation(exif_of(*format, bytes))};
  if (swaps_sides(head.orientation)) std::swap(head.width, head.height);
  return head;
}

Result<void> check_picture_size(const PictureHead& head, std::int64_t max_pixels) {
  const std::int64_t num_pixels = std::int64_t{head.width} * head.height;
  if (std::max(head.width, head.height) > kMostPictureSide)
    return invalid(fmt::format("the image has {} x {} pixels; sides of at most {} are read: send a smaller one",
                               head.width, head.height, kMostPictureSide),
                   "", kTooLargePicture);
  if (num_pixels <= max_pixels) return {};
  return invalid(fmt::format("the image has {} x {} pixels; at most {} are read (media.max_pixels): send a smaller one",
                             head.width, head.height, max_pixels),
                 "", kTooLargePicture);
}

Result<Picture> decode_picture(std::string_view bytes, const PictureLimits& limits) {
  const auto head = read_picture_head(bytes, limits.as_stored);
  if (!head) return tl::make_unexpected(head.error());
  if (const auto fits = check_picture_size(*head, limits.max_pixels); !fits) return tl::make_unexpected(fits.error());
  auto picture = decode_format(head->format, bytes, limits);
  if (!picture) return picture;
  Picture upright = turn_upright(*std::move(picture), head->orientation);
  if (upright.width != head->width || upright.height != head->height)
    return broken("the image's header and its pixels disagree about its size");
  return upright;
}

namespace decoding {

tl::unexpected<Error> broken(std::string why) {
  return tl::make_unexpected(Error{ErrorKind::kInvalidRequest, std::move(why), kBrokenPicture, "", std::nullopt});
}

tl::unexpected<Error> too_slow() {
  return tl::make_unexpected(Error{ErrorKind::kInvalidRequest,
                                   "the image takes too long to decode (media.max_decode_time): send a simpler one",
                                   kSlowPicture, "", std::nullopt});
}

namespace {

std::uint32_t byte_at(std::string_view bytes, std::size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}

}  // namespace

std::uint32_t big16(std::string_view bytes, std::size_t at) {
  return (byte_at(bytes, at) << 8) | byte_at(bytes, at + 1);
}

std::uint32_t big32(std::string_view bytes, std::size_t at) {
  return (big16(bytes, at) << 16) | big16(bytes, at + 2);
}

std::uint32_t little16(std::string_view bytes, std::size_t at) {
  return byte_at(bytes, at) | (byte_at(bytes, at + 1) << 8);
}

}  // namespace decoding

}  // namespace quire
