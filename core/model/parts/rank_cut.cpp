#include "core/model/parts/rank_cut.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "kernels/check.h"

namespace quire {

namespace {

constexpr std::int64_t kLeastGranule = 8;  // features cut together if the type has no blocks

// Some columns of rows that are made or stored in a file.
class ColumnsMaker final : public RowMaker {
 public:
  ColumnsMaker(const WeightSource& whole, FeatureRange columns)
      : whole_(whole),
        skipped_(dtype_bytes(whole.type, columns.begin)),
        bytes_(dtype_bytes(whole.type, columns.count)),
        row_bytes_(dtype_bytes(whole.type, whole.cols)) {}

  void make_row(std::int64_t row, std::byte* out) const override {
    if (whole_.maker == nullptr) {
      std::memcpy(out, whole_.data + static_cast<std::size_t>(row) * row_bytes_ + skipped_, bytes_);
      return;
    }
    std::vector<std::byte> made(row_bytes_);
    whole_.maker->make_row(whole_.first_row + row, made.data());
    std::memcpy(out, made.data() + skipped_, bytes_);
  }

 private:
  const WeightSource whole_;
  const std::size_t skipped_;
  const std::size_t bytes_;
  const std::size_t row_bytes_;
};

}  // namespace

FeatureRange RankCut::features(std::int64_t size, std::int64_t block) const {
  const std::int64_t granule = std::max(block, kLeastGranule);
  const auto begin_of = [&](int at) { return at == num_ranks_ ? size : size / granule * at / num_ranks_ * granule; };
  return {begin_of(rank_), begin_of(rank_ + 1) - begin_of(rank_)};
}

LinearSource RankCut::rows_in(const LinearSource& whole, const std::vector<FeatureRange>& ranges) {
  LinearSource out;
  for (const FeatureRange& range : ranges) {
    std::int64_t first = 0;  // first row of the matrix among all
    for (const WeightSource& part : whole.parts) {
      const std::int64_t begin = std::max(range.begin, first);
      const std::int64_t end = std::min(range.begin + range.count, first + part.rows);
      if (begin < end) out.parts.push_back(rows_of(part, begin - first, end - begin));
      first += part.rows;
    }
    if (!whole.bias.empty())
      out.bias.insert(out.bias.end(), whole.bias.begin() + range.begin, whole.bias.begin() + range.begin + range.count);
  }
  return out;
}

void RankCut::take_rows(SourceGroup& group, WeightRole product, const std::vector<FeatureRange>& ranges) {
  LinearSource& whole = group.products.at(product);
  whole = rows_in(whole, ranges);
}

void RankCut::take_columns(LinearSource& product, FeatureRange columns) const {
  for (WeightSource& part : product.parts) {
    QUIRE_CHECK(part.order == nullptr, "columns cut that are in an order of their own");
    auto maker = std::make_shared<ColumnsMaker>(part, columns);
    part.cols = columns.count;
    part.data = nullptr;
    part.first_row = 0;
    part.maker = maker.get();
    owned_.push_back(std::move(maker));
  }
  if (rank_ > 0) product.bias.clear();
}

void RankCut::take_values(std::map<WeightRole, std::vector<float>>& vectors, WeightRole role, FeatureRange range) {
  const auto found = vectors.find(role);
  if (found == vectors.end()) return;
  const auto begin = found->second.begin() + range.begin;
  found->second = std::vector<float>(begin, begin + range.count);
}

RankCut::Products RankCut::product_of(const SourceGroup& weights, WeightRole role) {
  const auto found = weights.products.find(role);
  return found == weights.products.end() ? Products() : Products(&found->second, 1);
}

RankCut::Products RankCut::experts_of(const SourceGroup& weights, WeightRole role) {
  const auto found = weights.experts.find(role);
  return found == weights.experts.end() ? Products() : Products(found->second);
}

std::int64_t RankCut::features_of_block(Products products) {
  std::int64_t block = 1;
  for (const LinearSource& product : products) {
    for (const WeightSource& part : product.parts)
      block = std::max<std::int64_t>(block, dtype_info(part.type).block_size);
  }
  return block;
}

bool RankCut::can_divide(std::int64_t size, std::int64_t block, int num_ranks) {
  return size / std::max(block, kLeastGranule) >= num_ranks;
}

bool RankCut::is_reordered(Products products) {
  return std::ranges::any_of(products, [](const LinearSource& product) {
    return std::ranges::any_of(product.parts, [](const WeightSource& part) { return part.order != nullptr; });
  });
}

std::string RankCut::why_not_columns(const char* what, std::int64_t size, Products products, int num_ranks) {
  if (is_reordered(products)) return fmt::format("the columns of {} are in an order of their own", what);
  const std::int64_t block = features_of_block(products);
  if (can_divide(size, block, num_ranks)) return "";
  return fmt::format("{} of {} features in blocks of {} cannot be divided", what, size, std::max(block, kLeastGranule));
}

}  // namespace quire
