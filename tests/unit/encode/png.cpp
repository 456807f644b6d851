#include "tests/unit/encode/png.h"

#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace quire::test {

namespace {

using Bytes = std::vector<std::uint8_t>;

std::uint32_t big_endian(const Bytes& bytes, std::size_t at) {
  return static_cast<std::uint32_t>(bytes.at(at)) << 24 | static_cast<std::uint32_t>(bytes.at(at + 1)) << 16 |
         static_cast<std::uint32_t>(bytes.at(at + 2)) << 8 | bytes.at(at + 3);
}

int nearest_of(int a, int b, int c) {
  const int guess = a + b - c;
  const int to_a = std::abs(guess - a);
  const int to_b = std::abs(guess - b);
  const int to_c = std::abs(guess - c);
  if (to_a <= to_b && to_a <= to_c) return a;
  return to_b <= to_c ? b : c;
}

// Undoes the filters: one byte says which before each line.
Bytes unfiltered(const Bytes& raw, std::size_t stride, std::size_t height, std::size_t pixel) {
  Bytes out(stride * height);
  for (std::size_t y = 0; y < height; ++y) {
    const std::uint8_t filter = raw.at(y * (stride + 1));
    for (std::size_t x = 0; x < stride; ++x) {
      const int left = x >= pixel ? out[y * stride + x - pixel] : 0;
      const int above = y > 0 ? out[(y - 1) * stride + x] : 0;
      const int corner = x >= pixel && y > 0 ? out[(y - 1) * stride + x - pixel] : 0;
      const int added[] = {0, left, above, (left + above) / 2, nearest_of(left, above, corner)};
      out[y * stride + x] = static_cast<std::uint8_t>(raw.at(y * (stride + 1) + 1 + x) + added[filter % 5]);
    }
  }
  return out;
}

}  // namespace

Picture read_png(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const Bytes bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Bytes packed;
  Bytes palette;
  std::size_t width = 0;
  std::size_t height = 0;
  std::uint8_t kind = 0;
  for (std::size_t at = 8; at + 12 <= bytes.size();) {
    const std::size_t size = big_endian(bytes, at);
    const std::string name(bytes.begin() + static_cast<std::ptrdiff_t>(at + 4),
                           bytes.begin() + static_cast<std::ptrdiff_t>(at + 8));
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at + 8);
    const auto end = begin + static_cast<std::ptrdiff_t>(size);
    if (name == "IHDR") {
      width = big_endian(bytes, at + 8);
      height = big_endian(bytes, at + 12);
      if (bytes.at(at + 16) != 8 || bytes.at(at + 20) != 0) throw std::runtime_error("not a plain PNG of 8 bits");
      kind = bytes.at(at + 17);
    }
    if (name == "IDAT") packed.insert(packed.end(), begin, end);
    if (name == "PLTE") palette.assign(begin, end);
    at += size + 12;
  }
  const std::size_t channels = kind == 2 ? 3 : kind == 6 ? 4 : 1;
  Bytes raw((width * channels + 1) * height);
  uLongf raw_size = raw.size();
  if (width == 0 || uncompress(raw.data(), &raw_size, packed.data(), packed.size()) != Z_OK)
    throw std::runtime_error("a PNG that cannot be read: " + path.string());
  const Bytes lines = unfiltered(raw, width * channels, height, channels);
  Picture out{static_cast<std::int32_t>(width), static_cast<std::int32_t>(height), Bytes(width * height * 3)};
  for (std::size_t i = 0; i < width * height; ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      const std::uint8_t value = lines[i * channels + (channels > 1 ? c : 0)];
      out.rgb[i * 3 + c] = kind == 3 ? palette.at(value * std::size_t{3} + c) : value;
    }
  }
  return out;
}

}  // namespace quire::test
