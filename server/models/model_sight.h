// ModelSight: the tower that reads pictures for one model, and the backend that computes it: the model's own; beside a
// model on a GPU a second one there, whose stream runs beside the model's; beside one on several GPUs a CPU backend.
// Immutable; any thread. The encoder's runs belong to the engine thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "core/model/encode/encoder.h"
#include "core/model/layers/loaded_model.h"
#include "kernels/registry.h"
#include "server/media/media_sight.h"

namespace quire {

class ModelSight {
 public:
  // Throws StartupError where the file is no tower for the model. `model_backend` must outlive it.
  ModelSight(std::filesystem::path path, PictureForm form, bool ignores_unknown_keys, const ModelInfo& model,
             Backend& model_backend, const BackendOptions& options);

  Backend& backend() const { return own_backend_ != nullptr ? *own_backend_ : model_backend_; }
  // Weights, and activations of the largest picture of at most so many rows.
  std::uint64_t num_bytes(std::int64_t most_rows) const;
  // Hash of its files, with the form and what else makes the rows' bits. Reads them from end to end, but for hashes
  // that the folder keeps.
  std::string content(const std::filesystem::path& folder) const;
  const std::shared_ptr<const MediaSight>& view() const { return view_; }

 private:
  const std::filesystem::path path_;
  const PictureForm form_;
  Backend& model_backend_;
  std::shared_ptr<Backend> own_backend_;
  std::shared_ptr<const Encoder> encoder_;  // keeps own_backend_, which has the weights' memory
  std::shared_ptr<const MediaSight> view_;
};

}  // namespace quire
