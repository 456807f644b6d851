// Checks of adapters before the model is loaded. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>

#include "kernels/backend.h"

namespace quire {

// Throws StartupError if the backend computes no adapters.
void require_adapters(const Backend& backend);
// Reads an adapter for a model of these files (read_adapter()), and discards it. Throws StartupError.
void check_adapter(const std::filesystem::path& adapter, const std::filesystem::path& model, Backend& backend,
                   std::int64_t max_rank);

}  // namespace quire
