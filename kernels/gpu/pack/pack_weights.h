// Layout of a matrix in a device's memory: in strips (strips.h), in half tiles (half_tiles.h) or as the file's rows, in
// groups of 16 outputs that are packed each on its own. Pure functions of the host; any thread. Invariant: group i lies
// at i * group_bytes; only the last one of rows as they are may be shorter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace quire::gpu {

struct PackedGroups {
  enum class Form : std::uint8_t { kStrips, kHalfTiles, kRows };

  Form form = Form::kRows;
  std::int64_t count = 0;
  std::size_t group_bytes = 0;
  std::size_t bytes = 0;  // bytes of all groups
};

// The layout in which products read a matrix.
PackedGroups groups_of_weights(DType type, std::int64_t rows, std::int64_t cols);
// The layout in which embed reads a table of rows: strips, or the file's rows.
PackedGroups groups_of_table(DType type, std::int64_t rows, std::int64_t cols);

// Groups [first, last) of the source, to `out`.
void pack_groups(const WeightSource& source, const PackedGroups& groups, std::int64_t first, std::int64_t last,
                 std::byte* out);

// Returns whether a type is multiplied in int8, and is therefore stored in strips.
bool lies_in_strips(DType type);

// Bytes of 16 outputs, and of a whole matrix.
std::size_t strip_group_bytes(DType type, std::int64_t cols);
std::size_t strips_bytes(DType type, std::int64_t rows, std::int64_t cols);

// Outputs [16 * group, 16 * group + 16) of the source, strip_group_bytes() of them, all of which are written; outputs
// beyond the source's are zeros.
void pack_strip_group(const WeightSource& source, std::int64_t group, std::byte* out);

// Returns whether a type is multiplied in 16 bits.
bool lies_in_half_tiles(DType type);

// Bytes of 16 outputs, and of a whole matrix.
std::size_t half_group_bytes(std::int64_t cols);
std::size_t half_tiles_bytes(std::int64_t rows, std::int64_t cols);

// Outputs [16 * group, 16 * group + 16) of the source, half_group_bytes() of them, all of which are written; outputs
// beyond the source's are zeros.
void pack_half_group(const WeightSource& source, std::int64_t group, std::byte* out);

}  // namespace quire::gpu
