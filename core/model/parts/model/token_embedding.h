// TokenEmbedding: the input of the first layer, from tokens, their types and their positions.
#pragma once

#include "core/model/parts/model/model_part.h"

namespace quire {

class ModelRun;

class TokenEmbedding final : public ModelPart {
 public:
  std::span<const RoleName> roles() const override;
  void list_weights(const ModelSpec& spec, WeightList& list) const override;
  const char* lacking(const ModelSpec& spec, Backend& backend) const override;

  // Sets x to the embeddings of the tokens. Rows of media may replace some of them before complete().
  static void look_up(const ModelRun& model, std::span<const std::int32_t> ids, MatrixView x);
  // Adds types and positions of the rows, scales and norms. No types: all are 0.
  static void complete(const ModelRun& model, std::span<const std::int32_t> positions,
                       std::span<const std::int8_t> types, MatrixView x);

 private:
  static void scale(const ModelRun& model, MatrixView x);
  static void add_types(const ModelRun& model, std::span<const std::int8_t> types, MatrixView x);
};

}  // namespace quire
