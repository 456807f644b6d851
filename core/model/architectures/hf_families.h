// The Hugging Face side of the architectures: which model types there are, what their configuration says under GGUF's
// keys, and what their tensors are called. Immutable facts; any thread.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/model/architectures/model_config.h"
#include "core/model/formats/gguf.h"
#include "core/model/formats/tensor_table.h"

namespace quire {

struct HfFamily {
  std::string_view model_type;
  std::string_view architecture;  // GGUF's
  // "gguf=hf" where a stem differs from the table of roles, separated by spaces. '#' is an expert's number; a name that
  // ends in '$' is whole.
  std::string_view names;
  bool swaps_halves = false;     // rotates halves, where GGUF files of this architecture have pairs
  bool norms_minus_one = false;  // norm weights are stored without their one
  bool uses_gelu = false;
  std::string_view column_experts = "";  // a layer's stacks of experts, where they are [experts][inputs][outputs]
  bool pairs_experts = false;            // outputs of gate and up alternate in such stacks
};

// Null where the model type is not known. `config`: the text part of a configuration.
const HfFamily* find_hf_family(std::string_view model_type);

// The configuration as metadata under GGUF's keys. Throws StartupError, one line that begins with `where`.
std::shared_ptr<const GgufFile> translate_hf_config(const nlohmann::json& config, const HfFamily& family,
                                                    const std::string& where);
// Names the tensors as GGUF does, and adds those that are stored in another form.
void translate_hf_tensors(const nlohmann::json& config, const HfFamily& family, TensorTable& tensors);

}  // namespace quire
