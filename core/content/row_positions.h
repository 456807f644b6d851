// RowPositions: the positions that a model rotates rows by. The position of a raster's row has three numbers; text
// after a piece of media continues after the positions that the piece consumed (M-RoPE, arXiv 2409.12191). A view; any
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/content/media.h"

namespace quire {

class RowPositions {
 public:
  explicit RowPositions(std::span<const MediaRun> media) : media_(media) {}

  // Time, height and width of the row at this index of the sequence: three equal numbers for text.
  std::array<std::int32_t, 3> at(std::int64_t index) const {
    std::int64_t position = index;
    for (const MediaRun& run : media_) {
      if (run.begin > index) break;
      if (index < run.end()) return inside(run, position - (index - run.begin), index - run.begin);
      position -= run.num_rows - run.num_positions;
    }
    return all(position);
  }

 private:
  static std::array<std::int32_t, 3> all(std::int64_t position) {
    const auto each = static_cast<std::int32_t>(position);
    return {each, each, each};
  }
  // first: the position of text at the run's begin.
  static std::array<std::int32_t, 3> inside(const MediaRun& run, std::int64_t first, std::int64_t row) {
    if (run.grid_width <= 0) return all(first + row);
    return {static_cast<std::int32_t>(first), static_cast<std::int32_t>(first + row / run.grid_width),
            static_cast<std::int32_t>(first + row % run.grid_width)};
  }

  std::span<const MediaRun> media_;
};

}  // namespace quire
