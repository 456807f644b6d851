// CpuGraphOps: GraphOps over plain loops and the level's row kernels, divided by rows or heads. One thread at a time.
// Invariant: the operations that make a row's result, and their order, depend on that row's inputs alone.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_attention.h"
#include "kernels/cpu/cpu_kv.h"
#include "kernels/cpu/cpu_linear.h"
#include "kernels/cpu/machine/thread_pool.h"
#include "kernels/routing.h"

namespace quire {

class CpuGraphOps final : public GraphOps {
 public:
  CpuGraphOps(const KernelTable& kernels, ThreadPool& pool, LinearRunner& linear, AttentionRunner& attention)
      : kernels_(kernels),
        pool_(pool),
        linear_(linear),
        attention_(attention),
        route_rooms_(static_cast<std::size_t>(pool.size())) {}

  void layer_norm(MatrixView x, const float* weight, const float* bias, float eps, MatrixView out) override;
  void activate(const ActivationArgs& args, MatrixView gate, MatrixView up, MatrixView out) override;
  void copy(MatrixView x, MatrixView out) override;
  void add(MatrixView x, float scale, MatrixView out) override;
  void scale(MatrixView x, float factor) override;
  void scale(MatrixView x, const float* factor) override { scale(x, *factor); }
  void scale_columns(MatrixView x, const float* factors) override;
  void scale_rows(MatrixView x, std::span<const float> factors) override;
  void gate(Nonlinearity kind, MatrixView gate, MatrixView x) override;
  void softcap(MatrixView x, float cap) override;
  void clamp(MatrixView x, float low, float high) override;
  void attention(const KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                 const AttentionOptions& options, MatrixView out) override;
  ExpertChoices route(MatrixView logits, const RouteOptions& options) override;
  void scale_by_weights(const ExpertChoices& choices, MatrixView x) override;
  void experts(const ExpertArgs& args, const ExpertChoices& choices, MatrixView x, MatrixView gate_up,
               MatrixView results, MatrixView out) override;
  void mix_streams(MatrixView factors, MatrixView x, MatrixView out) override;
  void add_to_streams(MatrixView factors, MatrixView x, MatrixView streams) override;
  void match_length(MatrixView like, MatrixView x) override;
  void keep_excess(MatrixView x, float deviations, bool of_sample) override;
  void head_linear(std::span<const std::unique_ptr<Linear>> heads, MatrixView x, MatrixView out) override;

 private:
  // body(row) for every row, rows of `cost` elements.
  template <class Body>
  void for_rows(std::int64_t rows, std::int64_t cost, const Body& body) {
    constexpr std::int64_t kGrain = 8192;  // less is not worth waking a thread
    const std::int64_t step = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, cost));
    pool_.run((rows + step - 1) / step, [&](int, std::int64_t piece) {
      for (std::int64_t row = piece * step; row < std::min(rows, (piece + 1) * step); ++row)
        body(row);
    });
  }
  void combine(MatrixView results, const float* weights, MatrixView out);
  // The rows of one expert that one adapter changes: a range of the choices in the experts' order.
  struct ChangedRows {
    const LowRank* change;
    std::int64_t begin;
    std::int64_t end;
  };
  enum class ExpertProduct : std::uint8_t { kGateUp, kDown };
  // Finds the rows of change number `part` of a product.
  void find_changed(const ExpertArgs& args, ExpertProduct product, std::size_t part);
  // in: the layer's rows for the first product, those of the choices in the experts' order for the second, as `out`.
  void add_changes(const ExpertArgs& args, ExpertProduct product, const ProductInput& in, MatrixView out);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  LinearRunner& linear_;
  AttentionRunner& attention_;
  std::vector<RouteRoom> route_rooms_;  // indexed by worker
  std::vector<std::int32_t> chosen_ids_;
  std::vector<float> chosen_weights_;
  ExpertOrder order_;
  std::vector<LinearJob> jobs_;
  std::vector<ChangedRows> changed_;
};

}  // namespace quire
