// PackedGroups: how a matrix lies in a device's memory (strips, half tiles or the file's rows), as groups of 16 outputs
// that are packed each on its own. Pure functions of the host; any thread. Invariant: group i lies at i * group_bytes,
// only the last one of rows as they are may be shorter.
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

}  // namespace quire::gpu
