#include "kernels/gpu/pack/pack_weights.h"

#include <algorithm>
#include <cstring>

#include "kernels/check.h"
#include "kernels/gpu/pack/strips.h"

namespace quire::gpu {
namespace {

constexpr std::int64_t kGroupRows = kStripOutputs;

void copy_rows(const WeightSource& source, std::int64_t first, std::int64_t last, std::byte* out) {
  const std::size_t row_bytes = dtype_bytes(source.type, source.cols);
  if (source.maker == nullptr) {
    std::memcpy(out, source.data + static_cast<std::size_t>(first) * row_bytes,
                static_cast<std::size_t>(last - first) * row_bytes);
    return;
  }
  for (std::int64_t row = first; row < last; ++row, out += row_bytes)
    source.maker->make_row(source.first_row + row, out);
}

}  // namespace

PackedGroups groups_of_table(DType type, std::int64_t rows, std::int64_t cols) {
  PackedGroups groups{.count = (rows + kGroupRows - 1) / kGroupRows};
  if (lies_in_strips(type)) {
    groups.form = PackedGroups::Form::kStrips;
    groups.group_bytes = strip_group_bytes(type, cols);
    groups.bytes = strips_bytes(type, rows, cols);
  } else {
    const std::size_t row_bytes = dtype_bytes(type, cols);
    groups.group_bytes = kGroupRows * row_bytes;
    groups.bytes = static_cast<std::size_t>(rows) * row_bytes;
  }
  return groups;
}

PackedGroups groups_of_weights(DType type, std::int64_t rows, std::int64_t cols) {
  if (!lies_in_half_tiles(type)) return groups_of_table(type, rows, cols);
  return {.form = PackedGroups::Form::kHalfTiles,
          .count = (rows + kGroupRows - 1) / kGroupRows,
          .group_bytes = half_group_bytes(cols),
          .bytes = half_tiles_bytes(rows, cols)};
}

void pack_groups(const WeightSource& source, const PackedGroups& groups, std::int64_t first, std::int64_t last,
                 std::byte* out) {
  QUIRE_CHECK(first >= 0 && last <= groups.count, "packed rows that there are not");
  if (groups.form == PackedGroups::Form::kRows)
    return copy_rows(source, first * kGroupRows, std::min(last * kGroupRows, source.rows), out);
  for (std::int64_t group = first; group < last; ++group, out += groups.group_bytes) {
    if (groups.form == PackedGroups::Form::kStrips) {
      pack_strip_group(source, group, out);
    } else {
      pack_half_group(source, group, out);
    }
  }
}

}  // namespace quire::gpu
