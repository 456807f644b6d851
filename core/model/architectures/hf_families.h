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
#include "core/model/architectures/weight_roles.h"
#include "core/model/formats/gguf.h"
#include "core/model/formats/json_file.h"
#include "core/model/formats/tensor_table.h"

namespace quire {

class HfTranslation;

struct HfFamily {
  std::string_view model_type;
  std::string_view architecture;  // GGUF's
  // "gguf=hf" where a stem differs from the table of roles, separated by spaces. '#' is an expert's number; a name that
  // ends in '$' is whole, one that begins with '^' has no prefix. Names behind '|' stand in where the file lacks the
  // first.
  std::string_view names = "";
  std::string_view layers = "layers";    // what the list of layers is called
  bool swaps_halves = false;             // rotates halves, where GGUF files of this architecture have pairs
  bool norms_minus_one = false;          // norm weights are stored without their one
  std::string_view activation = "silu";  // the only one that is computed; "gelu": any form of it; empty: any
  std::string_view column_experts = "";  // a layer's stacks of experts, where they are [experts][inputs][outputs]
  bool pairs_experts = false;            // outputs of gate and up alternate in such stacks
  std::string_view defaults = "";        // of the configuration's class, JSON, where published files leave keys out
  void (*translate)(HfTranslation& translation) = nullptr;  // what the common keys do not say
};

std::span<const HfFamily> hf_families();
// By model type and, where published files share one, by other keys; null where it is not known.
const HfFamily* find_hf_family(std::string_view model_type);
const HfFamily* hf_family_of(const nlohmann::json& config);
// The known model type that is spelled most like this one.
std::string_view nearest_hf_family(std::string_view model_type);

// The configuration with what its class sets where the file leaves it out.
nlohmann::json with_class_defaults(const nlohmann::json& config, const HfFamily& family);

// "default" where there is none; names of one scheme are made one.
std::string rope_type_of(const JsonObject& scaling);
std::int64_t rotary_dim_of(const JsonObject& config);

// What files of an architecture's families call a weight of a layer, without the layer's prefix and the suffix.
std::vector<std::string> hf_layer_names(std::string_view architecture, WeightRole role);
// What the names of all tensors but the head's begin with.
std::string hf_prefix(const HfFamily& family, const TensorTable& tensors);
// The configuration, which `config` looks into, as metadata under GGUF's keys. Throws StartupError.
std::shared_ptr<const GgufFile> translate_hf_config(const nlohmann::json& raw, const JsonObject& config,
                                                    const HfFamily& family, TensorTable& tensors,
                                                    const SpecWishes& wishes = {});
// Names the tensors as GGUF does, and adds those that are stored in another form.
void translate_hf_tensors(const JsonObject& config, const HfFamily& family, TensorTable& tensors);
// Refuses keys that nothing has looked up and that may change what is computed: StartupError, one line that names the
// key, the known one that is spelled most like it and the way out. Keys of other tools and of training are warned of.
void refuse_unknown_hf_keys(const nlohmann::json& raw, const JsonObject& config, TensorTable& tensors,
                            const SpecWishes& wishes);

}  // namespace quire
