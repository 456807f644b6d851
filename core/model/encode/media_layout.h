// MediaLayout: the place of a picture in a prompt: its rows and the texts around them. PictureSettings: a request's
// wishes for a picture. Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace quire {

// A text, whose control tokens are read as tokens, or a run of rows.
struct LayoutPart {
  std::string text{};
  std::int64_t num_rows = 0;
  std::int32_t grid_width = 0;  // 0: positions are those of text
  std::int32_t grid_height = 0;
  std::int64_t num_positions = 0;  // positions that the rows consume
  bool is_bidirectional = false;   // rows of the run see each other in both directions
};

// The place of one picture in the prompt.
struct MediaLayout {
  std::vector<LayoutPart> parts;
  std::int64_t num_rows = 0;
};

struct PictureSettings {
  enum class Detail : std::uint8_t { kAuto, kLow, kHigh, kOriginal };
  std::optional<std::int64_t> min_pixels{};
  std::optional<std::int64_t> max_pixels{};
  Detail detail = Detail::kAuto;  // kLow: at most a quarter of the family's pixels; no tiles
};

}  // namespace quire
