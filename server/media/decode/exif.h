// EXIF's orientation: how a picture's rows and columns are turned to show it upright. Pure functions; any thread.
#pragma once

#include <string_view>

#include "core/content/picture.h"

namespace quire {

// `tiff`: EXIF's block from its byte order on. From 1 to 8; 1 where it has none or is damaged.
int exif_orientation(std::string_view tiff);
// Whether turning exchanges width and height.
inline bool swaps_sides(int orientation) {
  return orientation >= 5;
}
Picture turn_upright(Picture picture, int orientation);

}  // namespace quire
