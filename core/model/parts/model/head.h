// Head: the end of a model: its last norm, and logits of tokens, embeddings of texts or scores of a classifier.
#pragma once

#include "core/model/parts/model/model_part.h"

namespace quire {

class ModelRun;
class RankCut;
struct AdapterRun;
struct OutputRange;
struct ProductInput;
struct SourceGroup;

class Head final : public ModelPart {
 public:
  std::span<const RoleName> roles() const override;
  void list_weights(const ModelSpec& spec, WeightList& list) const override;
  void check(const ModelSpec& spec, const SpecChecker& check) const override;
  void fit(const ModelSpec& spec, Widths& widths) const override;
  const char* lacking(const ModelSpec& spec, Backend& backend) const override;
  std::string why_not_cut(const ModelSpec& spec, int num_ranks) const override;
  // Keeps a rank's share of the logits: rank 0 gathers all.
  static void cut(const RankCut& rank, ModelSpec& spec, SourceGroup& model);

  // Logits of these tokens, or of all if none are named; other logits may be minus infinity. May norm the input in
  // place. adapters: runs of the input's rows with an adapter.
  static MatrixView logits(const ModelRun& model, MatrixView input, std::span<const OutputRange> vocabulary,
                           std::span<const AdapterRun> adapters);
  static void multiply(const ModelRun& model, std::span<const OutputRange> vocabulary, const ProductInput& in,
                       MatrixView out);
  // The last norm, in place; nothing if the model has none.
  static void norm(const ModelRun& model, MatrixView x);
  // Makes hidden states embeddings, in place.
  static void embed(const ModelRun& model, MatrixView hidden);
  // Scores of a classifier. May norm the input in place.
  static MatrixView labels(const ModelRun& model, MatrixView input);
  // Mean of a sequence's rows after the last norm.
  static void average(const ModelRun& model, MatrixView rows, MatrixView mean);
};

}  // namespace quire
