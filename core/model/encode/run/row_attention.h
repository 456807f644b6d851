// RowAttention: full attention among consecutive rows of a tile, over keys and values in blocks. Immutable after
// construction; engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace quire {

// Keys and values of one layer of rows: `num_blocks` blocks as RowAttention fills them, in f32, on a device in f16,
// which its matrix instructions take.
std::unique_ptr<KvStorage> allocate_rows(Backend& backend, std::int64_t num_blocks, std::int64_t block_size,
                                         std::int64_t num_heads, std::int64_t head_dim);

class RowAttention {
 public:
  // Rows see each other from one of the ascending bounds to the next.
  RowAttention(std::vector<std::int64_t> bounds, std::int64_t block_size);
  std::int64_t num_blocks() const { return std::ssize(blocks_); }
  std::int64_t longest() const;  // rows that a row sees at most
  const std::vector<std::int64_t>& bounds() const { return bounds_; }

  // Keys and values of rows from first_row on; all are stored before run().
  void store(Backend& backend, KvStorage& storage, std::int64_t first_row, MatrixView k, MatrixView v) const;
  // q: rows from first_row on.
  void run(Backend& backend, const KvStorage& storage, std::int64_t first_row, std::int64_t num_heads, float scale,
           MatrixView q, MatrixView out) const;
  // Rows of q are those of another matrix, and each sees all rows.
  void run_across(Backend& backend, const KvStorage& storage, std::int64_t num_heads, float scale, MatrixView q,
                  MatrixView out) const;

 private:
  std::int64_t block_size_;
  std::vector<std::int64_t> bounds_;
  std::vector<std::int32_t> first_blocks_;  // first block of each sequence
  std::vector<std::int32_t> slots_;         // slot of each row
  std::vector<std::int32_t> blocks_;        // 0, 1, 2, ...
};

}  // namespace quire
