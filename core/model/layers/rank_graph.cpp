// A transformer as a rank of several that compute a model together: partial products are summed over the ranks.
#include "core/model/layers/transformer.h"
#include "kernels/rank_sum.h"

namespace quire {

bool Transformer::is_interrupted(const StepArrays& arrays) const {
  if (arrays.interrupt == nullptr) return false;
  const bool is_set = arrays.interrupt->load(std::memory_order_relaxed);
  return rank_sum_ == nullptr ? is_set : rank_sum_->agree(is_set);
}

void Transformer::multiply_cut(const Layer& layer, WeightRole product, const ProductInput& in, MatrixView out,
                               bool accumulate) {
  if (rank_sum_ == nullptr) return multiply(layer, product, in, out, accumulate);
  const MatrixView share = rank_sum_->share(out.rows, out.cols);
  multiply(layer, product, in, share, false);
  rank_sum_->add_up(share, out, accumulate);
}

void Transformer::feed_experts(const Layer& layer, MatrixView router_in, MatrixView in, MatrixView out) {
  if (rank_sum_ == nullptr) return run_experts(layer, router_in, in, out);
  const MatrixView share = rank_sum_->share(out.rows, out.cols);
  run_experts(layer, router_in, in, share);
  rank_sum_->add_up(share, out, false);
}

void Transformer::gather_logits(MatrixView own, MatrixView all) const {
  if (rank_sum_ != nullptr) rank_sum_->gather(own, all);
}

void Transformer::reserve_shares(std::int64_t rows) const {
  if (rank_sum_ != nullptr) rank_sum_->reserve(rows, spec_.config.hidden_size);
}

}  // namespace quire
