#include "server/models/model_sight.h"

#include <fmt/core.h>

#include <chrono>
#include <utility>

#include "core/model/formats/content_hash.h"
#include "core/model/formats/mapped_file.h"

namespace quire {

ModelSight::ModelSight(std::filesystem::path path, PictureForm form, const ModelInfo& model, Backend& model_backend,
                       const BackendOptions& options)
    : path_(std::move(path)), form_(form), model_backend_(model_backend) {
  const bool is_device = model_backend.steps() != nullptr || model_backend.parallel() != nullptr;
  if (is_device) own_backend_ = create_backend({.device = "cpu", .cpu = options.cpu});
  // Gemma 4's small models, which have embeddings for each layer, were trained with causal pictures; their files do not
  // say so.
  const bool is_causal = form == PictureForm::kTrained && model.per_layer_size > 0;
  encoder_ = Encoder::open(path_.string(), {.backend = &backend(),
                                            .form = form,
                                            .text_width = model.hidden_size,
                                            .text_has_grid_positions = model.positions_per_row > 1,
                                            .is_bidirectional = is_causal ? std::optional(false) : std::nullopt});
  // Pictures that were prepared for a tower that was unloaded are not found for the next one.
  const auto opened = std::chrono::steady_clock::now().time_since_epoch().count();
  view_ = sight_of(encoder_, fmt::format("{} opened at {}", path_.string(), opened), form_ == PictureForm::kLlamaCpp);
}

std::string ModelSight::content() const {
  const MappedFile file(path_);
  return fmt::format("{} {}", hex_digits(hash_content(file.bytes())),
                     form_ == PictureForm::kTrained ? "trained" : "llama.cpp");
}

}  // namespace quire
