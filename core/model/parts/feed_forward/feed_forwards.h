// The feed-forwards, one Part each, computed in the source of the same name. They hold no state: see part.h.
#pragma once

#include "core/model/parts/part.h"

namespace quire {

// A feed-forward of two or three products: gated (SwiGLU, arXiv 2002.05202) or not, with sparse gates.
class Dense final : public Part {
 public:
  std::span<const RoleName> roles() const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  bool is_plain(const LayerSpec& layer) const override;
  std::string why_not_cut(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) const override;
  void cut(const LayerSpec& whole, const RankCut& rank, LayerSpec& spec, SourceGroup& group) const override;
  bool takes_one_product(const LayerSpec&) const override { return true; }
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;
};

// A router, the experts that it chooses for each row, and a shared expert (arXiv 1701.06538, 2401.06066).
class Experts final : public Part {
 public:
  std::span<const RoleName> roles() const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  std::vector<ExpertMatrix> expert_matrices(const LayerSpec& layer, std::int64_t hidden_size) const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  void bound(const LayerSpec& layer, StepBounds& step) const override;
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  bool is_plain(const LayerSpec&) const override { return false; }
  std::string why_not_cut(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) const override;
  void cut(const LayerSpec& whole, const RankCut& rank, LayerSpec& spec, SourceGroup& group) const override;
  bool can_accumulate(const LayerSpec&) const override { return false; }
  void prepare(const LayerRun& layer, MatrixView x) const override;
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;

  // The router's input is not that of the experts. Sums over all ranks.
  static void run_routed(const LayerRun& layer, MatrixView router_in, MatrixView in, MatrixView out);

 private:
  static void run_share(const LayerRun& layer, MatrixView router_in, MatrixView in, MatrixView out);
  static void add_changes(const LayerRun& layer, std::int64_t rows_of_each, ExpertArgs& args);
  static MatrixView weighted_inputs(const LayerRun& layer, MatrixView in, const ExpertChoices& choices);
  static void sum_choices(const LayerRun& layer, MatrixView rows, MatrixView out);
  static void add_shared_expert(const LayerRun& layer, MatrixView in, MatrixView out);
};

// A dense feed-forward and experts side by side, each with norms of its own (Gemma 4).
class DenseAndExperts final : public Part {
 public:
  std::span<const RoleName> roles() const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  std::vector<ExpertMatrix> expert_matrices(const LayerSpec& layer, std::int64_t hidden_size) const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  void bound(const LayerSpec& layer, StepBounds& step) const override { experts_.bound(layer, step); }
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  bool is_plain(const LayerSpec&) const override { return false; }
  std::string why_not_cut(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) const override;
  void cut(const LayerSpec& whole, const RankCut& rank, LayerSpec& spec, SourceGroup& group) const override;
  bool can_accumulate(const LayerSpec&) const override { return false; }
  bool norms_input() const override { return true; }
  void prepare(const LayerRun& layer, MatrixView x) const override { experts_.prepare(layer, x); }
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;

 private:
  const Dense dense_{};
  const Experts experts_{};
};

}  // namespace quire
