// PicturePlan: how one picture of a given size becomes tiles for the tower and rows for the text model. Immutable after
// construction; any thread.
#pragma once

#include <memory>
#include <vector>

#include "core/model/encode/encoder.h"
#include "core/model/encode/towers/tower_spec.h"

namespace quire {

// The picture resized to `content` and put on bars of `size`; a negative place cuts it.
struct PictureCanvas {
  PictureSize size;
  PictureSize content;
  std::int32_t x = 0;
  std::int32_t y = 0;
  ResizeSpec resize;
  std::vector<PictureSize> before{};  // sizes on the way
};

// Rectangle of a canvas: an input of the tower.
struct PictureTile {
  std::size_t canvas = 0;
  std::int32_t x = 0;
  std::int32_t y = 0;
  PictureSize size;
  std::int64_t first_row = 0;          // number among the piece's rows
  std::vector<std::int32_t> places{};  // row of the piece for each row of the tile, -1: dropped; empty: in order
};

struct PicturePlan {
  std::vector<PictureCanvas> canvases;
  std::vector<PictureTile> tiles;          // in the order of rows
  std::vector<std::int64_t> break_rows{};  // rows of the piece that are the break row
  MediaLayout layout;
};

PicturePlan plan_picture(const TowerSpec& spec, PictureSize size, const PictureSettings& settings);

// The pixels of each tile.
std::vector<Picture> cut_tiles(const PicturePlan& plan, const Picture& picture);

}  // namespace quire
