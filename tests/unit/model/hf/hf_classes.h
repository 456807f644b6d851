// HfClass: a tiny model of one Hugging Face configuration class: the keys, tensor names and layouts of its checkpoints,
// beside the synthetic GGUF shape with the same weights. Immutable; any thread.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/tools/synth.h"

namespace quire::test {

struct HfClass {
  std::string model_type;
  std::string shape;   // shape of the synthetic GGUF file
  std::string keys;    // keys that replace the shape's
  std::string parts;   // extra parts of the shape; after '=': in place of its own
  std::string config;  // JSON that replaces the common keys; null removes one
  std::string layers;  // "model.layers"
  // "hf=gguf" for tensors of each layer, '^' before those of the model: stems, which stand for weight and bias, or
  // whole names if the first ends in '$'. '#' is an expert's number. A conversion of the values may precede the second
  // name: P16: rows of heads of 16 from pairs to halves; M: minus one; L: logarithm of the negative; T: transposed; F,
  // G: experts stacked by rows, plain or transposed; O2: after two further rows; U: two stacks transposed, side by
  // side; H4: a vector as four; 2*64,3*32: rows divided by factors; a+b: stacked by rows; @1.5: the number itself.
  std::string names;
};
const std::vector<HfClass>& hf_classes();

// The shape of the GGUF twin.
SynthSpec synth_spec(const HfClass& made);
nlohmann::json hf_config(const HfClass& made);
// `gguf`: the file that synth_spec() gives.
void write_hf_class(const HfClass& made, const nlohmann::json& config, const std::filesystem::path& gguf,
                    const std::filesystem::path& directory);

}  // namespace quire::test
