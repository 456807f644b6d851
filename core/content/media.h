// MediaKey: names a piece of media, such as a picture, by content. MediaRun: consecutive rows of one piece in a prompt.
// Values; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "core/base/ids.h"

namespace quire {

class PreparedMedia;

// XXH3-128 of the piece's file bytes, followed by the settings that it is prepared with.
struct MediaKey {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const MediaKey&) const = default;
};

// A piece with its number of rows in the model: its name in other processes.
struct MediaRef {
  MediaKey key;
  std::int64_t num_rows = 0;
  auto operator<=>(const MediaRef&) const = default;
};
static_assert(std::has_unique_object_representations_v<MediaRef>, "references are written as plain bytes");

// A piece that is cut into tiles has several runs with texts between.
struct MediaRun {
  std::int64_t begin = 0;  // index of its first row among the prompt's tokens
  std::int64_t num_rows = 0;
  std::int64_t first_row = 0;   // among the piece's rows
  std::int32_t grid_width = 0;  // columns of the rows' raster, for models whose positions have three numbers
  std::int32_t grid_height = 0;
  std::int64_t num_positions = 0;  // positions consumed: num_rows if they count like text's
  bool is_bidirectional = false;   // rows of the run attend to each other in both directions
  MediaKey key;
  std::shared_ptr<const PreparedMedia> media;  // input of the encoder; null in prompts that are only counted

  std::int64_t end() const { return begin + num_rows; }
};

// The placeholder of a piece's row in Request::prompt.
constexpr TokenId media_placeholder(std::int64_t row) {
  return TokenId{static_cast<std::int32_t>(-1 - row)};
}

}  // namespace quire
