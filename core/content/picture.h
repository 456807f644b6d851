// Picture: the decoded pixels of one picture. Plain value; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

inline constexpr std::int64_t kChannels = 3;  // red, green and blue

struct Picture {
  std::int32_t width = 0;
  std::int32_t height = 0;
  std::vector<std::uint8_t> rgb;  // 8-bit RGB, row after row, no padding
};

}  // namespace quire
