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
  std::int64_t head_dim;       // size of queries and K
  std::int64_t value_dim = 0;  // size of V; 0: head_dim

  std::int64_t values() const { return value_dim == 0 ? head_dim : value_dim; }
};

inline bool keeps(const Backend& backend, KvDType dtype) {
  return dtype != KvDType::kI4 || backend.has(Ability::kInt4Cache);
}

// Rows of a sequence that one call computes.
struct Chunk {
  std::size_t sequence;
  std::int64_t begin;
  std::int64_t end;
};

// A rotated vector as int4 keeps it: minimum + scale * code, the first two of each group.
struct Int4Vector {
  std::vector<double> codes;
  std::vector<double> scales;
  std::vector<double> minima;
};

class AttentionScene {
 public:
  // options: heads and scale are set here; sinks that are not null are replaced by random ones.
  AttentionScene(std::uint32_t seed, Heads heads, KvDType dtype, std::vector<std::int64_t> lengths,
                 std::int64_t block_size = 16, const AttentionOptions& options = {});

  // Makes the first `tokens` tokens of a sequence, rounded down to whole blocks, those of an earlier one. Returns the
  // number of shared tokens.
  std::int64_t share(std::size_t sequence, std::size_t earlier, std::int64_t tokens);
  // Rows [begin, end) of each causal sequence that has them see each other in both directions; calls take them whole.
  void see_each_other(std::int64_t begin, std::int64_t end) { span_ = {0, begin, end}; }
  // Allocates a cache whose bytes were all written before, as NaN if the type has one.
  std::unique_ptr<KvStorage> make_cache(Backend& backend) const;
  // Stores K and V of the chunks and computes their attention in one call; rows of `out` are in the order of the
  // chunks. Blocks behind the windows of a chunk's rows are overwritten first. `out` without data: only stores.
  void run(Backend& backend, KvStorage& kv, const std::vector<Chunk>& chunks, MatrixView out);
  std::vector<Chunk> everything() const;
  std::int64_t num_rows(const std::vector<Chunk>& chunks) const;
  // Rows of all sequences, in order, computed by calls with the given chunks each.
  Matrix run_in_calls(Backend& backend, const std::vector<std::vector<Chunk>>& calls);
  // The largest difference from attention in double precision over K and V as the cache's type rounds them, over every
  // early and late position and a sample between. Computed once for all backends.
  double worst_error(Backend& backend);
  std::int64_t width() const { return heads_.num_heads * heads_.values(); }  // columns of results

 private:
  std::int64_t query_width() const { return heads_.num_heads * heads_.head_dim; }
  std::int64_t first_seen(std::int64_t position) const;
  bool sees(std::int64_t position, std::int64_t token) const;
  // Each head's vector as attention uses it: [token * heads + head]. V holds codes if the cache is int4.
  struct Kept {
    std::vector<std::vector<double>> queries, keys, values;
    std::vector<Int4Vector> codes;
  };
  struct Stored {
    Matrix q, k, v;
    std::vector<std::int32_t> blocks;
  };
  using Wanted = std::vector<std::vector<double>>;  // rows of all sequences, in order; empty: not checked

  Kept kept(const Stored& from) const;
  double score(const Kept& from, std::int64_t position, std::int64_t token, std::int64_t head) const;
  // The sum of an int4 V times probabilities.
  std::vector<double> expected_int4(const Kept& from, std::int64_t kv_head, const std::vector<std::int64_t>& tokens,
                                    const std::vector<double>& probabilities) const;
  // Attention of one position: [num_heads * value_dim].
  std::vector<double> attend(const Kept& from, std::int64_t length, std::int64_t position) const;
  const Wanted& wanted();

  Heads heads_;
  AttentionOptions options_;
  std::vector<float> sinks_;
  KvLayout layout_;
  std::int32_t stale_block_ = 0;
  Chunk span_{};  // rows of each sequence; empty: none
  std::vector<Stored> sequences_;
  Wanted wanted_;  // empty until the first comparison
};

}  // namespace quire::test
