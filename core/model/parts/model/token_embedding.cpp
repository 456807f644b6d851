#include "core/model/parts/model/token_embedding.h"

#include <algorithm>

#include "core/model/parts/layer_run.h"
#include "core/model/parts/part.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"

namespace quire {

std::span<const RoleName> TokenEmbedding::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kTokenEmbedding, {"token_embd", "embed_tokens"}},
      {Role::kPositions, {"position_embd", ""}},
      {Role::kTokenTypes, {"token_types", ""}},
      {Role::kEmbeddingNorm, {"token_embd_norm", ""}},
  };
  return kRoles;
}

void TokenEmbedding::list_weights(const ModelSpec& spec, WeightList& list) const {
  const std::int64_t hidden = list.hidden_size();
  list.rows(Role::kTokenEmbedding, spec.config.vocab_size, hidden);
  if (spec.has_positions) list.rows(Role::kPositions, spec.config.max_context, hidden);
  if (spec.num_token_types > 0) list.vector(Role::kTokenTypes, spec.num_token_types * hidden);
  list.vector(spec.embedding_norm, hidden);
}

const char* TokenEmbedding::lacking(const ModelSpec& spec, Backend& backend) const {
  const bool adds_inputs = spec.has_positions || spec.num_token_types > 0;
  return first_lacking({{adds_inputs, Ability::kGraph, "embeddings of positions or types"},
                        {spec.embedding_scale != 1.0, Ability::kGraph, "scaled embeddings"}},
                       backend);
}

void TokenEmbedding::scale(const ModelRun& model, MatrixView x) {
  const auto factor = static_cast<float>(model.spec().embedding_scale);
  if (model.spec().embedding_scale != 1.0) model.graph().scale(x, factor);
}

void TokenEmbedding::look_up(const ModelRun& model, std::span<const std::int32_t> ids, MatrixView x) {
  model.embed(Role::kTokenEmbedding, ids, x);
  if (!model.spec().scales_media) scale(model, x);
}

void TokenEmbedding::complete(const ModelRun& model, std::span<const std::int32_t> positions,
                              std::span<const std::int8_t> types, MatrixView x) {
  const ModelSpec& spec = model.spec();
  if (spec.scales_media) scale(model, x);
  if (spec.num_token_types > 0) add_types(model, types, x);
  if (spec.has_positions) {
    const MatrixView learned = model.room(kBranch, x.rows, x.cols);
    model.embed(Role::kPositions, positions, learned);
    model.graph().add(learned, 1.0F, x);
  }
  if (spec.embedding_norm != Role::kNoRole) model.norm(spec.embedding_norm, x, x);
}

// Adds runs of rows of a type. A model with a single type uses it for the second text of a pair too.
void TokenEmbedding::add_types(const ModelRun& model, std::span<const std::int8_t> types, MatrixView x) {
  const float* vectors = model.vector(Role::kTokenTypes);
  const auto type_of = [&](std::int64_t row) {
    const std::int64_t type = types.empty() ? 0 : types[static_cast<std::size_t>(row)];
    return std::min(type, model.spec().num_token_types - 1);
  };
  for (std::int64_t begin = 0, end = 0; begin < x.rows; begin = end) {
    const std::int64_t type = type_of(begin);
    for (end = begin + 1; end < x.rows && type_of(end) == type; ++end) {
    }
    const MatrixView row{const_cast<float*>(vectors + type * x.cols), end - begin, x.cols, 0};
    model.graph().add(row, 1.0F, row_range(x, begin, end - begin));
  }
}

}  // namespace quire
