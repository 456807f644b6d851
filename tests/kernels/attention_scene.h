// Sequences with random K, V and queries in a paged cache with shuffled block tables, and attention over them in double
// precision. One thread at a time.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/random_data.h"

namespace quire::test {

struct Heads {
  std::int64_t num_heads;
  std::int64_t num_kv_heads;
  std::int64_t head_dim;
};

// Which rows of which sequence one call computes.
struct Chunk {
  std::size_t sequence;
  std::int64_t begin;
  std::int64_t end;
};

class AttentionScene {
 public:
  AttentionScene(std::uint32_t seed, Heads heads, KvDType dtype, std::vector<std::int64_t> lengths,
                 std::int64_t block_size = 16);

  // A cache in which every byte was written before by someone else, as NaN where the type has one.
  std::unique_ptr<KvStorage> make_cache(Backend& backend) const;
  // Stores K and V of the chunks and computes their attention in one call; rows of `out` in the order of the chunks.
  void run(Backend& backend, KvStorage& kv, const std::vector<Chunk>& chunks, MatrixView out);
  std::vector<Chunk> everything() const;
  std::int64_t num_rows(const std::vector<Chunk>& chunks) const;
  // Attention of one position over K and V as the cache's type rounds them: [num_heads * head_dim].
  std::vector<double> expected(std::size_t sequence, std::int64_t position);
  std::int64_t width() const { return heads_.num_heads * heads_.head_dim; }

  bool causal = true;  // false: every row sees all of its sequence

 private:
  struct Stored {
    Matrix q, k, v;
    std::vector<std::int32_t> blocks;
  };

  Heads heads_;
  KvLayout layout_;
  std::vector<Stored> sequences_;
};

}  // namespace quire::test
