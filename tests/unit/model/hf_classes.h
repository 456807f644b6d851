// HfClass: a tiny model of one configuration class of Hugging Face, as what a checkpoint of the class calls its keys
// and tensors and how it holds them, beside the synthetic GGUF shape with the same weights. Immutable; any thread.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/tools/synth.h"

namespace quire::test {

struct HfClass {
  std::string model_type;
  std::string shape;   // of the synthetic GGUF file
  std::string keys;    // that replace the shape's
  std::string parts;   // that the shape has besides; behind '=': instead of its own
  std::string config;  // JSON that replaces the common keys; null takes one away
  std::string layers;  // "model.layers"
  // "hf=gguf" for tensors of each layer, '^' before those of the model: stems, whose weight and bias are both meant, or
  // whole names where the first ends in '$'. '#' is an expert's number. Before the second name may stand what becomes
  // of the values: P16: rows of heads of 16 from pairs to halves; M: less one; L: logarithm of minus; T: transposed;
  // F, G: experts under one another, plain or transposed;
  // O2: behind two further rows; U: two stacks transposed, side by side; H4: a vector as four; 2*64,3*32: rows divided
  // by factors; a+b: under one another;
  // @1.5: the number itself.
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
