#include "kernels/gpu/pack/pack_weights.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/gpu/pack/half_tiles.h"

namespace quire::gpu {
namespace {

// A row's tiles hold it 64 bytes each.
void put_row(const std::byte* row, std::int64_t cols, std::byte* out) {
  const std::int64_t whole = cols / kHalfBlock;
  for (std::int64_t block = 0; block < whole; ++block)
    std::memcpy(out + block * static_cast<std::int64_t>(sizeof(WeightTile)), row + block * kHalfRowBytes,
                kHalfRowBytes);
  if (const std::int64_t rest = cols % kHalfBlock; rest > 0) {
    std::byte* const last = out + whole * static_cast<std::int64_t>(sizeof(WeightTile));
    std::memset(last, 0, kHalfRowBytes);
    std::memcpy(last, row + whole * kHalfRowBytes, static_cast<std::size_t>(2 * rest));
  }
}

}  // namespace

bool lies_in_half_tiles(DType type) {
  return type == DType::kF16 || type == DType::kBF16;
}

std::size_t half_group_bytes(std::int64_t cols) {
  return static_cast<std::size_t>((cols + kHalfBlock - 1) / kHalfBlock) * sizeof(WeightTile);
}

std::size_t half_tiles_bytes(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>((rows + kHalfOutputs - 1) / kHalfOutputs) * half_group_bytes(cols);
}

void pack_half_group(const WeightSource& source, std::int64_t group, std::byte* out) {
  const std::int64_t first = group * kHalfOutputs;
  const std::int64_t count = std::min<std::int64_t>(kHalfOutputs, source.rows - first);
  const auto row_bytes = static_cast<std::size_t>(2 * source.cols);
  if (count < kHalfOutputs) std::memset(out, 0, half_group_bytes(source.cols));
  std::vector<std::byte> made(source.maker == nullptr ? 0 : row_bytes);
  for (std::int64_t row = first; row < first + count; ++row, out += kHalfRowBytes) {
    if (source.maker != nullptr) source.maker->make_row(source.first_row + row, made.data());
    put_row(source.maker != nullptr ? made.data() : source.data + static_cast<std::size_t>(row) * row_bytes,
            source.cols, out);
  }
}

}  // namespace quire::gpu
