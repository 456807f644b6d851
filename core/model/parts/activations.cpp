#include "core/model/parts/activations.h"

#include "kernels/check.h"

namespace quire {

void Activations::reserve(ActivationName which, std::int64_t rows) {
  Memory& memory = memory_[static_cast<std::size_t>(which)];
  if (rows <= memory.capacity) return;
  memory.buffer.reset();  // frees the old rows, which are not needed, before the new ones are allocated
  if (widths_[which] > 0) memory.buffer = backend_.allocate(rows * widths_[which]);
  memory.capacity = rows;
}

MatrixView Activations::view(ActivationName which, std::int64_t rows, std::int64_t cols) const {
  const Memory& memory = at(which);
  QUIRE_CHECK(cols <= widths_[which], "an activation wider than planned");
  QUIRE_CHECK(rows <= memory.capacity || cols == 0, "a step keeps within what was reserved for it");
  return {
      .data = memory.buffer == nullptr ? nullptr : memory.buffer->data(), .rows = rows, .cols = cols, .stride = cols};
}

}  // namespace quire
