#include "core/model/parts/model/next_tokens.h"

#include "core/model/parts/layer_run.h"
#include "core/model/parts/model/layer_branches.h"
#include "core/model/parts/parts.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"
#include "kernels/check.h"

namespace quire {

std::span<const RoleName> NextTokens::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kNextInput, {"nextn.eh_proj", ""}},
      {Role::kNextTokenNorm, {"nextn.enorm", ""}},
      {Role::kNextHiddenNorm, {"nextn.hnorm", ""}},
      {Role::kNextOutputNorm, {"nextn.shared_head_norm", ""}},
  };
  return kRoles;
}

void NextTokens::list_block(WeightList& list) {
  const std::int64_t hidden = list.hidden_size();
  list.alone(Role::kNextInput, hidden, 2 * hidden);
  list.vector(Role::kNextTokenNorm, hidden);
  list.vector(Role::kNextHiddenNorm, hidden);
  list.vector(Role::kNextOutputNorm, hidden, true);
}

void NextTokens::fit(const ModelSpec& spec, Widths& widths) const {
  if (!spec.next_tokens) return;
  widths.fit(kNextHidden, spec.config.hidden_size);
  widths.fit(kNextJoined, 2 * spec.config.hidden_size);
  widths.fit(kNext, spec.config.hidden_size);
}

const char* NextTokens::lacking(const ModelSpec& spec, Backend& backend) const {
  return spec.next_tokens && backend.recurrent() == nullptr ? "blocks that predict further tokens" : nullptr;
}

std::string NextTokens::why_not_cut(const ModelSpec& spec, int /*num_ranks*/) const {
  return spec.next_tokens ? "its block that predicts further tokens is used" : "";
}

void NextTokens::join(const ModelRun& model, const LayerRun& block, std::span<const std::int32_t> ids,
                      MatrixView hidden, MatrixView out) {
  const MatrixView joined = model.room(kNextJoined, hidden.rows, 2 * hidden.cols);
  const MatrixView tokens = columns(joined, 0, hidden.cols);
  model.embed(Role::kTokenEmbedding, ids, out);
  model.backend().rms_norm(out, block.vector(Role::kNextTokenNorm), model.eps(), tokens);
  model.backend().rms_norm(hidden, block.vector(Role::kNextHiddenNorm), model.eps(),
                           columns(joined, hidden.cols, hidden.cols));
  model.work.multiply(block.weights, Role::kNextInput, joined, out, false);
}

void NextTokens::store(const ModelRun& model, const LayerRun& block, std::span<const std::int32_t> ids, MatrixView x) {
  const Slice& slice = block.slice;
  QUIRE_CHECK(slice.states != nullptr, "a block that predicts further tokens without states");
  const MatrixView hidden = model.room(kNextHidden, x.rows, x.cols);
  const MatrixView next = model.room(kNext, x.rows, x.cols);
  model.norm(model.spec().final_norm, x, hidden);
  block.recurrent().short_conv(slice.attention, block.state(false),
                               {.taps = 2, .weights = model.work.previous_row->data()}, hidden, {}, {}, hidden);
  join(model, block, ids, hidden, next);
  mixer_part(block.spec).store(block, block.input(block.spec.mixer_norm, next, true), x.rows);
}

MatrixView NextTokens::run(const ModelRun& model, const LayerRun& block, std::span<const std::int32_t> ids,
                           MatrixView hidden) {
  const MatrixView x = model.room(kX, hidden.rows, hidden.cols);
  join(model, block, ids, hidden, x);
  LayerBranches::run(block, x);
  const bool has_own_norm = block.vector(Role::kNextOutputNorm) != nullptr;
  model.work.norm(has_own_norm ? block.weights : model.weights,
                  has_own_norm ? Role::kNextOutputNorm : model.spec().final_norm, x, x);
  return x;
}

}  // namespace quire
