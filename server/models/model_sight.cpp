#include "server/models/model_sight.h"

#include <fmt/core.h>

#include <chrono>
#include <set>
#include <span>
#include <utility>

#include "core/model/encode/encoder.h"
#include "core/model/encode/run/tower_run.h"
#include "core/model/layers/model_identity.h"

namespace quire {

namespace {

// Content of the files that a directory's tower is read from.
std::string directory_content(const std::filesystem::path& directory, const std::filesystem::path& folder) {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const bool is_read = name.ends_with(".safetensors") || name == "config.json" || name == "tokenizer.json" ||
                         name == "preprocessor_config.json" || name == "processor_config.json";
    if (is_read && entry.is_regular_file()) files.insert(entry.path());
  }
  std::string all;
  for (const std::filesystem::path& file : files)
    all += file.filename().string() + ' ' + hex_digits(content_of(file, folder)) + ' ';
  return hex_digits(hash_content(std::as_bytes(std::span(all))));
}

}  // namespace

ModelSight::ModelSight(std::filesystem::path path, PictureForm form, bool ignores_unknown_keys, const ModelInfo& model,
                       Backend& model_backend, const BackendOptions& options)
    : path_(std::move(path)), form_(form), model_backend_(model_backend) {
  if (model_backend.parallel() != nullptr) {
    own_backend_ = create_backend({.device = "cpu", .cpu = options.cpu});
  } else if (model_backend.has_own_memory()) {
    own_backend_ = create_backend(options);
  }
  // Gemma 4's small models, which have embeddings for each layer, were trained with causal pictures; their files do not
  // say so.
  const bool is_causal = form == PictureForm::kTrained && model.per_layer_size > 0;
  auto encoder = Encoder::open(path_.string(), {.backend = &backend(),
                                                .form = form,
                                                .text_width = model.hidden_size,
                                                .text_has_grid_positions = model.positions_per_row > 1,
                                                .is_bidirectional = is_causal ? std::optional(false) : std::nullopt,
                                                .ignores_unknown_keys = ignores_unknown_keys});
  encoder_ = {encoder.release(), [kept = own_backend_](const Encoder* last) { delete last; }};
  // Pictures that were prepared for a tower that was unloaded are not found for the next one.
  const auto opened = std::chrono::steady_clock::now().time_since_epoch().count();
  view_ = sight_of(encoder_, fmt::format("{} opened at {}", path_.string(), opened), form_ == PictureForm::kLlamaCpp);
}

std::uint64_t ModelSight::num_bytes(std::int64_t most_rows) const {
  return encoder_->bytes() + most_run_bytes(encoder_->spec(), most_rows, backend());
}

std::string ModelSight::content(const std::filesystem::path& folder) const {
  return fmt::format("{} {}{}",
                     is_directory(path_) ? directory_content(path_, folder) : hex_digits(content_of(path_, folder)),
                     form_ == PictureForm::kTrained ? "trained" : "llama.cpp",
                     backend().has_own_memory() ? " " + backend().name() : std::string());
}

}  // namespace quire
