// Picture: the pixels of a decoded picture. Value type; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

// 8-bit RGB, row after row, no padding.
struct Picture {
  std::int32_t width = 0;
  std::int32_t height = 0;
  std::vector<std::uint8_t> rgb;
};

}  // namespace quire
