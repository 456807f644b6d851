// Resampling of 8-bit pictures, exact to the bit: Pillow's antialiased filters in its fixed point, and llama.cpp's. Any
// thread.
#pragma once

#include "core/content/picture.h"
#include "core/model/encode/pictures/picture_spec.h"

namespace quire {

// The whole picture at another size; a copy where it has that size already.
Picture resize(const Picture& picture, PictureSize size, ResizeFilter filter);

struct PicturePart {
  std::int32_t x = 0;
  std::int32_t y = 0;
  PictureSize size;
};

// Resizes one rectangle of the result, to the same pixels, by one of Pillow's filters; the rest takes no memory.
Picture resize_part(const Picture& picture, PictureSize size, const PicturePart& part, ResizeFilter filter);

}  // namespace quire
