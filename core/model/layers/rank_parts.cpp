#include "core/model/layers/rank_parts.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "core/base/result.h"
#include "kernels/check.h"
#include "kernels/rank_sum.h"

namespace quire {

namespace {

using Role = WeightRole;

constexpr std::int64_t kLeastGranule = 8;  // features cut together if the type has no blocks

struct FeatureRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

using Products = std::span<const LinearSource>;

std::int64_t features_of_block(Products products) {
  std::int64_t block = 1;
  for (const LinearSource& product : products) {
    for (const WeightSource& part : product.parts)
      block = std::max<std::int64_t>(block, dtype_info(part.type).block_size);
  }
  return block;
}

// The rank's part of `size` features: whole blocks, at most one more or less than other ranks have.
FeatureRange features_of_rank(std::int64_t size, std::int64_t block, int rank, int num_ranks) {
  const std::int64_t granule = std::max(block, kLeastGranule);
  const auto border = [&](int at) { return at == num_ranks ? size : size / granule * at / num_ranks * granule; };
  return {border(rank), border(rank + 1) - border(rank)};
}

bool can_divide(std::int64_t size, std::int64_t block, int num_ranks) {
  return size / std::max(block, kLeastGranule) >= num_ranks;
}

Products product_of(const SourceGroup& weights, Role role) {
  const auto found = weights.products.find(role);
  return found == weights.products.end() ? Products() : Products(&found->second, 1);
}

Products experts_of(const SourceGroup& weights, Role role) {
  const auto found = weights.experts.find(role);
  return found == weights.experts.end() ? Products() : Products(found->second);
}

// True if a quantised matrix's columns are not in the order of its inputs.
bool is_reordered(Products products) {
  return std::ranges::any_of(products, [](const LinearSource& product) {
    return std::ranges::any_of(product.parts, [](const WeightSource& part) { return part.order != nullptr; });
  });
}

std::string why_not_columns(const char* what, std::int64_t size, Products products, int num_ranks) {
  if (is_reordered(products)) return fmt::format("the columns of {} are in an order of their own", what);
  const std::int64_t block = features_of_block(products);
  if (can_divide(size, block, num_ranks)) return "";
  return fmt::format("{} of {} features in blocks of {} cannot be divided", what, size, std::max(block, kLeastGranule));
}

std::string why_not_model(const ModelSpec& spec, int num_ranks) {
  if (!spec.is_causal) return "it attends in both directions";
  if (spec.num_labels > 0) return "it is a classifier";
  if (spec.next_tokens) return "its block that predicts further tokens is used";
  if (spec.has_head && !can_divide(spec.config.vocab_size, 1, num_ranks)) return "its vocabulary is too small";
  if (spec.num_streams > 1 || spec.laurel_rank > 0) return "it has residual streams";
  return "";
}

std::string why_not_attention(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) {
  const AttentionSpec& attention = layer.attention;
  if (attention.num_kv_heads % num_ranks != 0 || attention.num_heads % num_ranks != 0)
    return fmt::format("{} heads of attention over {} of K and V cannot be divided", attention.num_heads,
                       attention.num_kv_heads);
  const bool norms_all =
      !attention.unit_qk_norm && (attention.qk_norm == QkNorm::kFullWidth || attention.qk_norm == QkNorm::kLayerFull);
  if (norms_all || attention.output_norm) return "a norm of attention is over all heads";
  if (attention.alibi != 0.0) return "its slopes of attention are those of all heads";
  const Products out = product_of(weights, Role::kAttentionOutput);
  if (is_reordered(out)) return "the columns of the output of attention are in an order of their own";
  const std::int64_t width = attention.num_heads / num_ranks * attention.value_dim;
  if (width % features_of_block(out) == 0) return "";
  return fmt::format("the {} heads of {} features are {} for each, which blocks of {} do not divide",
                     attention.num_heads, attention.value_dim, width, features_of_block(out));
}

std::string why_not_feed_forward(const FeedForwardSpec& ffn, const SourceGroup& weights, int num_ranks) {
  using Kind = FeedForwardSpec::Kind;
  if (ffn.kind == Kind::kNone) return "";
  std::string why;
  if (ffn.kind != Kind::kExperts) {
    if (ffn.sub_norm) return "a norm of the feed-forward is over all of its columns";
    if (ffn.sparsity) return "its feed-forwards are sparse";
    why = why_not_columns("a feed-forward", ffn.size, product_of(weights, Role::kDown), num_ranks);
  }
  if (ffn.kind == Kind::kDense || !why.empty()) return why;
  why = why_not_columns("an expert", ffn.expert_size, experts_of(weights, Role::kDownExperts), num_ranks);
  if (ffn.shared_size > 0 && why.empty())
    why = why_not_columns("the shared expert", ffn.shared_size, product_of(weights, Role::kDownShared), num_ranks);
  return why;
}

std::string why_not_layer(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) {
  if (layer.mixer == Mixer::kLatent) return "it has latent attention";
  if (layer.mixer != Mixer::kAttention && layer.mixer != Mixer::kNone) return "it has recurrent layers";
  if (layer.mixer == Mixer::kAttention) {
    if (std::string why = why_not_attention(layer, weights, num_ranks); !why.empty()) return why;
  }
  return why_not_feed_forward(layer.feed_forward, weights, num_ranks);
}

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

// Cuts out the weights of a rank.
class RankCutter {
 public:
  RankCutter(int rank, int num_ranks, std::vector<std::shared_ptr<const void>>& owned)
      : rank_(rank), num_ranks_(num_ranks), owned_(owned) {}

  void cut_layer(const LayerSpec& whole, LayerSpec& spec, SourceGroup& group) {
    if (whole.mixer == Mixer::kAttention) cut_attention(whole.attention, spec.attention, group);
    using Kind = FeedForwardSpec::Kind;
    const Kind kind = whole.feed_forward.kind;
    if (kind == Kind::kDense || kind == Kind::kBoth) cut_dense(whole.feed_forward, spec.feed_forward, group);
    if (kind == Kind::kExperts || kind == Kind::kBoth) cut_experts(whole.feed_forward, spec.feed_forward, group);
  }

  // Cuts the head: rank 0 gathers all logits.
  void cut_head(ModelSpec& spec, SourceGroup& model) const {
    const FeatureRange part = columns_of(spec.config.vocab_size, 1);
    take_rows(model.products, Role::kHead, {part});
    if (rank_ > 0) spec.config.vocab_size = part.count;
  }

 private:
  FeatureRange heads(std::int64_t count, std::int64_t width) const {
    const std::int64_t each = count / num_ranks_ * width;
    return {rank_ * each, each};
  }

  void cut_attention(const AttentionSpec& whole, AttentionSpec& spec, SourceGroup& group) {
    spec.num_heads = whole.num_heads / num_ranks_;
    spec.num_kv_heads = whole.num_kv_heads / num_ranks_;
    const FeatureRange query = heads(whole.num_heads, whole.key_dim);
    const FeatureRange key = heads(whole.num_kv_heads, whole.key_dim);
    const FeatureRange value = heads(whole.num_kv_heads, whole.value_dim);
    const FeatureRange attended = heads(whole.num_heads, whole.value_dim);
    std::vector<FeatureRange> rows{query};
    std::int64_t end = whole.num_heads * whole.key_dim;
    const auto take = [&](FeatureRange range, std::int64_t size) {
      rows.push_back({end + range.begin, range.count});
      end += size;
    };
    if (whole.gate == OutputGate::kInQuery) take(query, end);
    if (whole.kv_source < 0) take(key, whole.num_kv_heads * whole.key_dim);
    if (whole.kv_source < 0 && !whole.value_is_key) take(value, whole.num_kv_heads * whole.value_dim);
    take_rows(group.products, Role::kQuery, rows);
    if (whole.gate == OutputGate::kPerHead)
      take_rows(group.products, Role::kAttentionGate, {heads(whole.num_heads, 1)});
    if (whole.gate == OutputGate::kFull) take_rows(group.products, Role::kAttentionGate, {attended});
    take_columns(group.products.at(Role::kAttentionOutput), attended);
    take_values(group.vectors, Role::kSinks, heads(whole.num_heads, 1));
    if (whole.qk_norm != QkNorm::kLayerPerHead) return;
    for (auto* vectors : {&group.vectors, &group.biases}) {
      take_values(*vectors, Role::kQueryNorm, query);
      take_values(*vectors, Role::kKeyNorm, key);
    }
  }

  void cut_dense(const FeedForwardSpec& whole, FeedForwardSpec& spec, SourceGroup& group) {
    const FeatureRange part = columns_of(whole.size, features_of_block(product_of(group, Role::kDown)));
    spec.size = part.count;
    take_rows(group.products, Role::kGate, halves(part, whole.size, whole.is_gated));
    take_columns(group.products.at(Role::kDown), part);
  }

  void cut_experts(const FeedForwardSpec& whole, FeedForwardSpec& spec, SourceGroup& group) {
    std::vector<LinearSource>& down = group.experts.at(Role::kDownExperts);
    const FeatureRange part = columns_of(whole.expert_size, features_of_block(down));
    spec.expert_size = part.count;
    for (LinearSource& expert : group.experts.at(Role::kGateExperts))
      expert = rows_in(expert, halves(part, whole.expert_size, whole.experts_gated));
    for (LinearSource& expert : down)
      take_columns(expert, part);
    if (rank_ > 0) group.vectors.erase(Role::kExpertsBias);
    if (rank_ > 0 && whole.latent_size > 0) group.products.at(Role::kLatentUp).bias.clear();
    if (whole.shared_size == 0) return;
    const FeatureRange shared = columns_of(whole.shared_size, features_of_block(product_of(group, Role::kDownShared)));
    spec.shared_size = shared.count;
    take_rows(group.products, Role::kGateShared, halves(shared, whole.shared_size, whole.experts_gated));
    take_columns(group.products.at(Role::kDownShared), shared);
  }

  FeatureRange columns_of(std::int64_t size, std::int64_t block) const {
    return features_of_rank(size, block, rank_, num_ranks_);
  }

  // Ranges of the gate's outputs and of the gated ones, which follow them.
  static std::vector<FeatureRange> halves(FeatureRange part, std::int64_t size, bool is_gated) {
    std::vector<FeatureRange> out{part};
    if (is_gated) out.push_back({size + part.begin, part.count});
    return out;
  }

  static LinearSource rows_in(const LinearSource& whole, const std::vector<FeatureRange>& ranges) {
    LinearSource out;
    for (const FeatureRange& range : ranges) {
      std::int64_t first = 0;  // first row of the part among all
      for (const WeightSource& part : whole.parts) {
        const std::int64_t begin = std::max(range.begin, first);
        const std::int64_t end = std::min(range.begin + range.count, first + part.rows);
        if (begin < end) out.parts.push_back(rows_of(part, begin - first, end - begin));
        first += part.rows;
      }
      if (!whole.bias.empty())
        out.bias.insert(out.bias.end(), whole.bias.begin() + range.begin,
                        whole.bias.begin() + range.begin + range.count);
    }
    return out;
  }

  static void take_rows(std::map<Role, LinearSource>& products, Role role, const std::vector<FeatureRange>& ranges) {
    LinearSource& product = products.at(role);
    product = rows_in(product, ranges);
  }

  static void take_values(std::map<Role, std::vector<float>>& vectors, Role role, FeatureRange range) {
    const auto found = vectors.find(role);
    if (found == vectors.end()) return;
    const auto begin = found->second.begin() + range.begin;
    found->second = std::vector<float>(begin, begin + range.count);
  }

  // Only rank 0 adds the bias.
  void take_columns(LinearSource& product, FeatureRange columns) {
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

  const int rank_;
  const int num_ranks_;
  std::vector<std::shared_ptr<const void>>& owned_;
};

}  // namespace

std::string why_not_cut(const ModelSpec& spec, const WeightSources& weights, int num_ranks) {
  if (num_ranks == 1) return "";
  if (num_ranks > kMostRanks) return fmt::format("more than {} devices are not used together", kMostRanks);
  std::string why = why_not_model(spec, num_ranks);
  for (std::size_t layer = 0; layer < spec.layers.size() && why.empty(); ++layer)
    why = why_not_layer(spec.layers[layer], weights.layers[layer], num_ranks);
  return why;
}

void require_cut(const ModelSpec& spec, const WeightSources& weights, int num_ranks) {
  const std::string why = why_not_cut(spec, weights, num_ranks);
  if (why.empty()) return;
  std::vector<int> fitting;
  for (int count = 2; count <= kMostRanks; ++count) {
    if (why_not_cut(spec, weights, count).empty()) fitting.push_back(count);
  }
  const std::string instead = fitting.empty() ? "leave backend.tensor_parallel out"
                                              : fmt::format("{} {}, or one device", fmt::join(fitting, ", "),
                                                            fitting.size() == 1 ? "fits" : "fit");
  throw StartupError(fmt::format("{} cannot be computed by {} devices together: {}; {}", spec.config.architecture,
                                 num_ranks, why, instead));
}

RankPart part_of_rank(const ModelSpec& spec, const WeightSources& weights, int rank, int num_ranks) {
  RankPart out{spec, weights};
  if (num_ranks == 1) return out;
  RankCutter cutter(rank, num_ranks, out.weights.owned);
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer)
    cutter.cut_layer(spec.layers[layer], out.spec.layers[layer], out.weights.layers[layer]);
  if (spec.has_head) cutter.cut_head(out.spec, out.weights.model);
  return out;
}

}  // namespace quire
