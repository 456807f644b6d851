// Synthetic towers: mmproj files with random finite weights in the shapes of real ones, to measure encoders without
// downloads. Any thread. Invariant: the file depends on shape, type and seed alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/formats/dtype.h"

namespace quire {

// "qwen3vl-2b-mmproj" and others, and a tiny one of each form for tests.
std::vector<std::string> synth_tower_names();

// Writes the file, tensor by tensor. `type`: of matrices; where its blocks do not divide their rows, Q8_0 or F16, as
// published files have them. `progress` (may be empty) receives tensors done of tensors in all. Throws StartupError
// where there is no such shape or the file cannot be written.
void write_synthetic_tower(std::string_view name, DType type, std::uint64_t seed, const std::filesystem::path& path,
                           const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace quire
