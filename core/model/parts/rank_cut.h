// RankCut: cuts a rank's share out of the weights of a layer (tensor parallelism, arXiv 1909.08053). Any thread.
// Invariants: the shares of the ranks make up the whole; a matrix is cut between blocks of its type, so that no weight
// is rounded again; only rank 0 keeps weights that are added after the sum over ranks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/parts/source_group.h"

namespace quire {

struct FeatureRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

class RankCut {
 public:
  // `owned` receives the memory behind the cut matrices.
  RankCut(int rank, int num_ranks, std::vector<std::shared_ptr<const void>>& owned)
      : rank_(rank), num_ranks_(num_ranks), owned_(owned) {}

  bool is_first() const { return rank_ == 0; }
  int num_ranks() const { return num_ranks_; }
  // The rank's share of `count` heads of `width` features.
  FeatureRange heads(std::int64_t count, std::int64_t width) const {
    const std::int64_t each = count / num_ranks_ * width;
    return {rank_ * each, each};
  }
  // The rank's share of `size` features: whole blocks, at most one more or less than other ranks have.
  FeatureRange features(std::int64_t size, std::int64_t block) const;

  // Ranges of the gate's outputs and of the gated ones, which follow them.
  static std::vector<FeatureRange> halves(FeatureRange part, std::int64_t size, bool is_gated) {
    std::vector<FeatureRange> out{part};
    if (is_gated) out.push_back({size + part.begin, part.count});
    return out;
  }
  static void take_rows(SourceGroup& group, WeightRole product, const std::vector<FeatureRange>& ranges);
  static LinearSource rows_in(const LinearSource& whole, const std::vector<FeatureRange>& ranges);
  // Only rank 0 keeps the bias.
  void take_columns(LinearSource& product, FeatureRange columns) const;
  // Nothing if the group has no such vector.
  static void take_values(std::map<WeightRole, std::vector<float>>& vectors, WeightRole role, FeatureRange range);

  // --- whether a cut is possible ---
  using Products = std::span<const LinearSource>;
  static Products product_of(const SourceGroup& weights, WeightRole role);
  static Products experts_of(const SourceGroup& weights, WeightRole role);
  static std::int64_t features_of_block(Products products);
  static bool can_divide(std::int64_t size, std::int64_t block, int num_ranks);
  // True if a quantised matrix's columns are not in the order of its inputs.
  static bool is_reordered(Products products);
  // The reason why the columns of `what` cannot be divided; empty: they can.
  static std::string why_not_columns(const char* what, std::int64_t size, Products products, int num_ranks);

 private:
  const int rank_;
  const int num_ranks_;
  std::vector<std::shared_ptr<const void>>& owned_;
};

}  // namespace quire
