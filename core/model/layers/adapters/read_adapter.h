// Reads an adapter's files and packs them for the products of a model on its backend; checks of adapters before the
// model is loaded. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "core/model/parts/adapter.h"
#include "core/model/parts/model_spec.h"

namespace quire {

// Throws StartupError, one line that begins with the path: the file is no adapter, belongs to another architecture or
// shape, changes embeddings, or has a larger rank than `max_rank`.
std::shared_ptr<const Adapter> read_adapter(const std::filesystem::path& path, const ModelSpec& spec, Backend& backend,
                                            std::int64_t max_rank);

// Throws StartupError if the backend computes no adapters.
void require_adapters(const Backend& backend);
// Reads an adapter for a model of these files, and discards it. Throws StartupError.
void check_adapter(const std::filesystem::path& adapter, const std::filesystem::path& model, Backend& backend,
                   std::int64_t max_rank);

}  // namespace quire
