#include "core/model/parts/model/head.h"

#include <algorithm>
#include <limits>

#include "core/model/parts/layer_run.h"
#include "core/model/parts/part.h"
#include "core/model/parts/rank_cut.h"
#include "core/model/parts/spec_checker.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"
#include "kernels/check.h"
#include "kernels/parallel/rank_sum.h"

namespace quire {

std::span<const RoleName> Head::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kOutputNorm, {"output_norm", "norm"}},
      {Role::kLfmOutputNorm, {"token_embd_norm", "embedding_norm"}},
      {Role::kEncoderOutputNorm, {"enc.output_norm", ""}},
      {Role::kHead, {"output", "^lm_head"}},
      {Role::kClassifier, {"cls", ""}},
      {Role::kClassifierNorm, {"cls.norm", ""}},
      {Role::kClassifierOutput, {"cls.output", ""}},
      {Role::kDense2, {"dense_2", ""}},
      {Role::kDense3, {"dense_3", ""}},
  };
  return kRoles;
}

void Head::list_weights(const ModelSpec& spec, WeightList& list) const {
  const std::int64_t hidden = list.hidden_size();
  list.vector(spec.final_norm, hidden);
  if (spec.has_head) list.alone(Role::kHead, spec.config.vocab_size, hidden);
  std::int64_t width = hidden;
  for (std::size_t i = 0; i < spec.dense_sizes.size(); ++i) {
    list.alone(i == 0 ? Role::kDense2 : Role::kDense3, spec.dense_sizes[i], width);
    width = spec.dense_sizes[i];
  }
  if (spec.has_classifier_dense) list.alone(Role::kClassifier, hidden, hidden);
  if (spec.has_classifier_norm) list.vector(Role::kClassifierNorm, hidden);
  if (spec.num_labels > 0) list.alone(Role::kClassifierOutput, spec.num_labels, hidden);
}

void Head::check(const ModelSpec& spec, const SpecChecker& check) const {
  for (const std::int64_t size : spec.dense_sizes)
    check.in_range("the width of a dense module", size, 1, 1 << 20);
  check.require(spec.dense_sizes.empty() || spec.dense_sizes.back() == spec.config.hidden_size,
                "dense modules that change the embedding's length are not supported");
}

void Head::fit(const ModelSpec& spec, Widths& widths) const {
  const std::int64_t hidden = spec.config.hidden_size;
  widths[kHeadInput] = widths[kHidden] = hidden;
  if (spec.has_head) widths[kLogits] = spec.config.vocab_size;
  if (!spec.dense_sizes.empty()) widths.fit(kDense, spec.dense_sizes.front());
  if (spec.num_labels == 0) return;
  widths[kLabels] = spec.num_labels;
  widths[kLabelInput] = hidden;
  widths[kLabelDense] = spec.has_classifier_dense ? hidden : 0;
}

const char* Head::lacking(const ModelSpec& spec, Backend& backend) const {
  return first_lacking({{spec.logit_scale != 1.0, Ability::kGraph, "scaled logits"},
                        {spec.logit_softcap != 0.0, Ability::kGraph, "a soft cap of logits"},
                        {!spec.dense_sizes.empty(), Ability::kGraph, "products behind the last norm"},
                        {spec.has_classifier_dense || spec.scores_mean, Ability::kGraph, "classifiers"}},
                       backend);
}

std::string Head::why_not_cut(const ModelSpec& spec, int num_ranks) const {
  if (spec.num_labels > 0) return "it is a classifier";
  const bool is_divided = !spec.has_head || RankCut::can_divide(spec.config.vocab_size, 1, num_ranks);
  return is_divided ? "" : "its vocabulary is too small";
}

void Head::cut(const RankCut& rank, ModelSpec& spec, SourceGroup& model) {
  if (!spec.has_head) return;
  const FeatureRange part = rank.features(spec.config.vocab_size, 1);
  RankCut::take_rows(model, Role::kHead, {part});
  if (!rank.is_first()) spec.config.vocab_size = part.count;
}

// --- computation -----------------------------------------------------------------------------------------------------

void Head::norm(const ModelRun& model, MatrixView x) {
  if (model.spec().final_norm != Role::kNoRole) model.norm(model.spec().final_norm, x, x);
}

void Head::multiply(const ModelRun& model, std::span<const OutputRange> vocabulary, const ProductInput& in,
                    MatrixView out) {
  constexpr float kImpossible = -std::numeric_limits<float>::infinity();
  const Linear& head = model.weights.product(Role::kHead);
  // A rank has only a part of the outputs, numbered from 0.
  if (vocabulary.empty() || model.work.rank_sum != nullptr) return model.backend().linear(head, in, out, false);
  model.backend().linear_some(head, in, vocabulary, kImpossible, out);
}

MatrixView Head::logits(const ModelRun& model, MatrixView input, std::span<const OutputRange> vocabulary,
                        std::span<const AdapterRun> adapters) {
  const ModelSpec& spec = model.spec();
  const MatrixView logits = model.room(kLogits, input.rows, spec.has_head ? spec.config.vocab_size : 0);
  if (input.rows == 0) return logits;
  QUIRE_CHECK(spec.has_head, "an encoder has no logits");
  const bool norms_on_the_way = spec.norm == NormKind::kRms;
  if (!norms_on_the_way) model.norm(spec.final_norm, input, input);
  const ProductInput in =
      norms_on_the_way ? normed(input, model.vector(spec.final_norm), model.eps()) : ProductInput(input);
  const MatrixView own = columns(logits, 0, model.weights.product(Role::kHead).out_features());
  multiply(model, vocabulary, in, own);
  for (const AdapterRun& run : adapters)
    model.work.add_low_rank(kHeadLowRank, run, run.adapter->of_model(Role::kHead), in, own);
  if (spec.logit_scale != 1.0) model.graph().scale(own, static_cast<float>(spec.logit_scale));
  if (spec.logit_softcap != 0.0) model.graph().softcap(own, static_cast<float>(spec.logit_softcap));
  if (model.work.rank_sum != nullptr) model.work.rank_sum->gather(own, logits);
  return logits;
}

// Products are linear, so rows may be pooled after them as well as before.
void Head::embed(const ModelRun& model, MatrixView hidden) {
  if (hidden.rows > 0) norm(model, hidden);
  const std::vector<std::int64_t>& sizes = model.spec().dense_sizes;
  if (sizes.empty()) return;
  const std::int64_t most = model.work.activations.capacity(kDense);
  for (std::int64_t begin = 0; begin < hidden.rows; begin += most) {
    const MatrixView part = row_range(hidden, begin, std::min(most, hidden.rows - begin));
    const MatrixView made = model.room(kDense, part.rows, sizes.front());
    model.multiply(Role::kDense2, part, made);
    if (sizes.size() == 1) {
      model.graph().copy(made, part);
    } else {
      model.multiply(Role::kDense3, made, part);
    }
  }
}

MatrixView Head::labels(const ModelRun& model, MatrixView input) {
  const ModelSpec& spec = model.spec();
  QUIRE_CHECK(spec.num_labels > 0, "the model has no classifier");
  const MatrixView labels = model.room(kLabels, input.rows, spec.num_labels);
  if (!spec.scores_mean) norm(model, input);
  if (!spec.has_classifier_dense) {
    model.multiply(Role::kClassifierOutput, input, labels);
    return labels;
  }
  const MatrixView dense = model.room(kLabelDense, input.rows, input.cols);
  model.multiply(Role::kClassifier, input, dense);
  model.graph().activate({.kind = spec.classifier_activation}, dense, {}, dense);
  if (spec.has_classifier_norm) model.norm(Role::kClassifierNorm, dense, dense);
  model.multiply(Role::kClassifierOutput, dense, labels);
  return labels;
}

void Head::average(const ModelRun& model, MatrixView rows, MatrixView mean) {
  const MatrixView last = model.room(kBranch, rows.rows, rows.cols);
  if (model.spec().final_norm == Role::kNoRole) {
    model.graph().copy(rows, last);
  } else {
    model.norm(model.spec().final_norm, rows, last);
  }
  model.graph().copy(row_range(last, 0, 1), mean);
  for (std::int64_t row = 1; row < rows.rows; ++row)
    model.graph().add(row_range(last, row, 1), 1.0F, mean);
  model.graph().scale(mean, 1.0F / static_cast<float>(rows.rows));
}

}  // namespace quire
