// Resampling of 8-bit pictures, exact to the bit: Pillow's antialiased filters in its fixed point, and llama.cpp's. Any
// thread.
#pragma once

#include "core/content/picture.h"
#include "core/model/encode/picture_spec.h"

namespace quire {

// The whole picture at another size; a copy where it has that size already.
Picture resize(const Picture& picture, PictureSize size, ResizeFilter filter);

}  // namespace quire
