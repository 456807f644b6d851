// The families of towers: each reads the keys of an mmproj file into a TowerSpec. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/encode/towers/mmproj_file.h"
#include "core/model/encode/towers/tower_spec.h"

namespace quire {

enum class PictureForm : std::uint8_t {
  kTrained,   // Hugging Face's processor, with which models were trained
  kLlamaCpp,  // llama.cpp's filters, bars and order of class tokens
};

// Completes a spec that holds the values found in all files.
struct TowerFamily {
  std::string_view projector;
  void (*read)(const MmprojFile& file, PictureForm form, TowerSpec& spec);
};

std::span<const TowerFamily> qwen_towers();     // towers_qwen.cpp
std::span<const TowerFamily> gemma_towers();    // towers_gemma.cpp
std::span<const TowerFamily> pixtral_towers();  // towers_pixtral.cpp
std::span<const TowerFamily> llava_towers();    // towers_llava.cpp
std::span<const TowerFamily> tiled_towers();    // towers_tiled.cpp
std::span<const TowerFamily> kimi_towers();     // towers_kimi.cpp
std::span<const TowerFamily> naflex_towers();   // towers_naflex.cpp
std::span<const TowerFamily> ocr_towers();      // towers_ocr.cpp
std::span<const TowerFamily> minicpm_towers();  // towers_minicpm.cpp

// Throws StartupError that names the projector where no family has it.
TowerSpec read_tower_spec(const MmprojFile& file, PictureForm form);

// Names of all projectors.
std::vector<std::string> tower_projectors();

// Steps and rotations, as families write them.
namespace tower {

// The side of the square of patches that becomes one row.
std::int64_t merge_side(const MmprojFile& file, const std::string& key, std::int64_t otherwise);

TowerStep layer_norm(std::string weight, std::optional<double> eps = {});
TowerStep rms_norm(std::string weight, std::optional<double> eps = {});
TowerStep merge(std::int64_t count);
TowerStep mean(std::int64_t count);
TowerStep linear(std::string weight);
TowerStep linear_by_channel(std::string weight, std::int64_t rows);
TowerStep linear_transposed(std::string weight);
TowerStep activate(Nonlinearity kind);
TowerStep gated(std::string gate, std::string up, std::string down, Nonlinearity kind);
TowerStep scale(float factor);
TowerStep if_present(TowerStep step);

// Pairs (i, i + d/2): the first half of the pairs turns by row, the other by column, at equal frequencies.
RopeSpec vision_rope(std::int64_t head_dim);
// Neighbours as pairs: the first half of the head by column or row, the second by the other one.
RopeSpec halves_rope(std::int64_t head_dim, bool column_first, std::int32_t first_place = 0);

}  // namespace tower

}  // namespace quire
