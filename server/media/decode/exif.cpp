#include "server/media/decode/formats.h"

#include <cstdint>
#include <cstring>

namespace quire {

namespace {

constexpr std::uint32_t kOrientationTag = 0x0112;
constexpr std::uint32_t kShortType = 3;

class TiffReader {
 public:
  explicit TiffReader(std::string_view bytes) : bytes_(bytes), is_big_(bytes.substr(0, 2) == "MM") {}

  // 0 beyond the end.
  std::uint32_t number(std::size_t at, std::size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) return 0;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const auto byte = static_cast<unsigned char>(bytes_[at + i]);
      value |= std::uint32_t{byte} << (8 * (is_big_ ? size - 1 - i : i));
    }
    return value;
  }

 private:
  std::string_view bytes_;
  bool is_big_;
};

}  // namespace

int exif_orientation(std::string_view tiff) {
  const bool has_order = tiff.substr(0, 2) == "II" || tiff.substr(0, 2) == "MM";
  const TiffReader reader(tiff);
  if (!has_order || reader.number(2, 2) != 42) return 1;
  const std::size_t list = reader.number(4, 4);
  const std::uint32_t count = reader.number(list, 2);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t entry = list + 2 + 12 * i;
    if (entry >= tiff.size()) break;
    if (reader.number(entry, 2) != kOrientationTag || reader.number(entry + 2, 2) != kShortType) continue;
    const std::uint32_t value = reader.number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Picture turn_upright(Picture picture, int orientation) {
  if (orientation <= 1 || orientation > 8) return picture;
  const bool swaps = swaps_sides(orientation);
  const std::int64_t width = picture.width;
  const std::int64_t height = picture.height;
  // Offsets in the source, in pixels, for one pixel to the right and one down in the result.
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const std::int64_t along_x = from_right ? -1 : 1;
  const std::int64_t along_y = from_bottom ? -width : width;
  const std::int64_t first = (from_right ? width - 1 : 0) + (from_bottom ? (height - 1) * width : 0);
  Picture out{swaps ? picture.height : picture.width, swaps ? picture.width : picture.height, {}};
  out.rgb.resize(picture.rgb.size());
  std::uint8_t* target = out.rgb.data();
  for (std::int64_t y = 0; y < out.height; ++y) {
    for (std::int64_t x = 0; x < out.width; ++x, target += 3) {
      const std::int64_t source = first + (swaps ? x * along_y + y * along_x : x * along_x + y * along_y);
      std::memcpy(target, picture.rgb.data() + 3 * source, 3);
    }
  }
  return out;
}

}  // namespace quire
