#include "kernels/gpu/pack_halves.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/check.h"
#include "kernels/gpu/half_tiles.h"

namespace quire::gpu {
namespace {

std::int64_t half_blocks(std::int64_t cols) {
  return (cols + kHalfBlock - 1) / kHalfBlock;
}

}  // namespace

bool lies_in_half_tiles(DType type) {
  return type == DType::kF16 || type == DType::kBF16;
}

std::size_t half_tiles_bytes(std::int64_t rows, std::int64_t cols) {
  const std::int64_t groups = (rows + kHalfOutputs - 1) / kHalfOutputs;
  return static_cast<std::size_t>(groups * half_blocks(cols)) * sizeof(WeightTile);
}

void pack_half_tiles(const WeightSource& source, std::span<std::byte> out) {
  QUIRE_CHECK(lies_in_half_tiles(source.type) && out.size() == half_tiles_bytes(source.rows, source.cols),
              "weights packed into tiles of another size");
  std::ranges::fill(out, std::byte{0});
  const auto row_bytes = static_cast<std::size_t>(2 * source.cols);
  std::vector<std::byte> made(source.maker == nullptr ? 0 : row_bytes);
  for (std::int64_t row = 0; row < source.rows; ++row) {
    if (source.maker != nullptr) source.maker->make_row(source.first_row + row, made.data());
    const std::byte* from =
        source.maker != nullptr ? made.data() : source.data + static_cast<std::size_t>(row) * row_bytes;
    const std::int64_t group = row / kHalfOutputs * half_blocks(source.cols);
    for (std::int64_t block = 0; block < half_blocks(source.cols); ++block) {
      const std::int64_t features = std::min<std::int64_t>(kHalfBlock, source.cols - block * kHalfBlock);
      std::byte* tile = out.data() + static_cast<std::size_t>(group + block) * sizeof(WeightTile);
      std::memcpy(tile + row % kHalfOutputs * kHalfRowBytes, from + block * kHalfRowBytes,
                  static_cast<std::size_t>(2 * features));
    }
  }
}

}  // namespace quire::gpu
