// The Hugging Face side of the architectures: the model types, their configuration translated to GGUF's keys, and the
// names of their tensors. Immutable facts; any thread.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/architectures/spec_reader.h"
#include "core/model/formats/gguf/gguf.h"
#include "core/model/formats/hf/json_file.h"
#include "core/model/formats/tensor_table.h"
#include "core/model/parts/weight_roles.h"

namespace quire {

class HfTranslation;

struct HfFamily {
  std::string_view model_type;
  std::string_view architecture;  // GGUF's
  // "gguf=hf" for stems that differ from the table of roles, separated by spaces. '#' is an expert's number; a name
  // ending in '$' is complete, one beginning with '^' has no prefix. Names after '|' are used if the file lacks the
  // first.
  std::string_view names = "";
  std::string_view layers = "layers";    // name of the list of layers
  bool swaps_halves = false;             // rotates halves, while GGUF files of this architecture have pairs
  bool norms_minus_one = false;          // norm weights are stored without their one
  std::string_view activation = "silu";  // the only supported one; "gelu": either form of it; empty: any
  std::string_view column_experts = "";  // a layer's stacks of experts, if they are [experts][inputs][outputs]
  bool pairs_experts = false;            // outputs of gate and up alternate in such stacks
  std::string_view defaults = "";        // the class's defaults, JSON, for keys that published files leave out
  void (*translate)(HfTranslation& translation) = nullptr;  // translates keys beyond the common ones
};

std::span<const HfFamily> hf_families();
// By model type and, if published files share one, by other keys; null if unknown.
const HfFamily* find_hf_family(std::string_view model_type);
const HfFamily* hf_family_of(const nlohmann::json& config);
// The known model type with the most similar spelling.
std::string_view nearest_hf_family(std::string_view model_type);

// The configuration completed with its class's defaults.
nlohmann::json with_class_defaults(const nlohmann::json& config, const HfFamily& family);

// "default" if absent; all names of a scheme give the same text.
std::string rope_type_of(const JsonObject& scaling);
std::int64_t rotary_dim_of(const JsonObject& config);

// Names that an architecture's families have for a layer's weight, without the layer's prefix and the suffix.
std::vector<std::string> hf_layer_names(std::string_view architecture, WeightRole role);
// Prefix of the names of all tensors but the head's.
std::string hf_prefix(const HfFamily& family, const TensorTable& tensors);
// The configuration, which `config` wraps, as metadata under GGUF's keys. Throws StartupError.
std::shared_ptr<const GgufFile> translate_hf_config(const nlohmann::json& raw, const JsonObject& config,
                                                    const HfFamily& family, TensorTable& tensors,
                                                    const SpecWishes& wishes = {});
// Gives the tensors GGUF's names, and adds those that are stored in another form.
void translate_hf_tensors(const JsonObject& config, const HfFamily& family, TensorTable& tensors);
// Refuses keys that were never looked up and may change results: StartupError, one line that names the key, the known
// key with the most similar spelling, and a way out. Keys of other tools and of training cause a warning.
void refuse_unknown_hf_keys(const nlohmann::json& raw, const JsonObject& config, TensorTable& tensors,
                            const SpecWishes& wishes);

}  // namespace quire
