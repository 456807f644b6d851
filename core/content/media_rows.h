// MediaRows: the rows that a piece of media gives to the model, in the backend's memory. Immutable; engine thread only.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace quire {

struct MediaRows {
  std::unique_ptr<Buffer> buffer;
  MatrixView rows;  // [the piece's rows, row_width]
};

}  // namespace quire
