// The block that predicts the token after next (MTP, arXiv 2412.19437, in Qwen3.5's form), from a row's hidden state
// and the token after the row. Here a row is that token's: its K and V depend on no later token, so they can lie in its
// block; of the row before, only the hidden state is needed, which is a part of the recurrent state.
#include "core/model/layers/transformer.h"
#include "core/model/parts/parts.h"
#include "core/model/parts/views.h"
#include "kernels/check.h"

namespace quire {

using Role = WeightRole;

void Transformer::join_next(std::span<const std::int32_t> ids, MatrixView hidden, MatrixView out) {
  const PackedLayer& weights = weights_.layers.back();
  const MatrixView joined = room(kNextJoined, hidden.rows, 2 * hidden.cols);
  const MatrixView tokens = columns(joined, 0, hidden.cols);
  backend_.embed(*weights_.model.rows[static_cast<std::size_t>(Role::kTokenEmbedding)], ids, out);
  backend_.rms_norm(out, weights.vector(Role::kNextTokenNorm), work_.eps, tokens);
  backend_.rms_norm(hidden, weights.vector(Role::kNextHiddenNorm), work_.eps,
                    columns(joined, hidden.cols, hidden.cols));
  work_.multiply(weights, Role::kNextInput, joined, out, false);
}

void Transformer::store_next(const StepArrays& arrays, const Slice& slice, MatrixView x) {
  QUIRE_CHECK(slice.states != nullptr, "a block that predicts further tokens without states");
  const MatrixView hidden = room(kNextHidden, x.rows, x.cols);
  const MatrixView next = room(kNext, x.rows, x.cols);
  norm_model(spec_.final_norm, x, hidden);
  work_.recurrent().short_conv(slice.attention, {slice.states, work_.state_places.back().offset},
                               {.taps = 2, .weights = shift_->data()}, hidden, {}, {}, hidden);
  join_next(arrays.token_ids.subspan(static_cast<std::size_t>(slice.begin), static_cast<std::size_t>(x.rows)), hidden,
            next);
  Slice own = slice;
  own.adapters = {};
  const LayerRun layer(work_, *spec_.next_tokens, weights_.layers.back(), spec_.config.num_layers, own);
  mixer_part(layer.spec).store(layer, layer.input(layer.spec.mixer_norm, next, true), x.rows);
}

MatrixView Transformer::draft(const DraftArrays& arrays, KvStorage& kv) {
  QUIRE_CHECK(spec_.next_tokens.has_value(), "the model has no block that predicts further tokens");
  const std::int64_t rows = arrays.num_rows();
  const std::int64_t width = spec_.config.hidden_size;
  const MatrixView hidden = room(kNextHidden, rows, width);
  const MatrixView x = room(kX, rows, width);
  if (arrays.is_first) {
    backend_.gather_rows(last_head_input_, arrays.hidden_rows, hidden);
    norm_model(spec_.final_norm, hidden, hidden);
  } else {
    backend_.gather_rows(last_drafted_, arrays.hidden_rows, hidden);
  }
  Slice slice;
  slice.end = rows;
  slice.attention = arrays.attention;
  slice.positions = arrays.positions;
  slice.kv = &kv;
  compute_rotations(slice);
  join_next(arrays.token_ids, hidden, x);
  const PackedLayer& weights = weights_.layers.back();
  compute_layer({work_, *spec_.next_tokens, weights, spec_.config.num_layers, slice}, x);
  const bool has_own_norm = weights.vector(Role::kNextOutputNorm) != nullptr;
  work_.norm(has_own_norm ? weights : weights_.model, has_own_norm ? Role::kNextOutputNorm : spec_.final_norm, x, x);
  last_drafted_ = x;
  const MatrixView logits = room(kLogits, rows, spec_.config.vocab_size);
  multiply_head(arrays.vocabulary, x, logits);
  return logits;
}

}  // namespace quire
