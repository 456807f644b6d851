// Shapes of synthetic models by family: the metadata and the parts that distinguish its files, as text. Any thread.
// Keys are GGUF's without prefix, or short: L layers, d hidden size, ff feed-forward, h and kv heads, hd head size, v
// vocabulary, ctx context, rot and base of the rotation, win window, E experts, top chosen ones, fe and fs widths of an
// expert and of the shared one. Parts are tensors that a file may lack: "stem:dim,dim@layers", a dim being a number, a
// short key or a product of them; layers "2-" from 2 on, "3/4" if the index modulo 4 is 3, "!3/4" otherwise.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/formats/gguf/gguf.h"
#include "core/model/parts/model_spec.h"

namespace quire {

struct FamilyShape {
  std::string architecture;
  std::string keys;
  std::string parts;
  std::string biases;        // stems with a bias in every layer, and model tensors
  bool next_tokens = false;  // after the layers, the block that predicts the token after next
};
std::optional<FamilyShape> find_family_shape(std::string_view name);
std::vector<std::string> family_shape_names();

// Divisors of the rotation's frequencies in synthetic files: rope_freqs, rope_factors_long, rope_factors_short.
std::vector<float> synth_rope_factors(std::string_view tensor, std::int64_t count);

// The shape as a file's metadata and as the spec that its family reads. Throws StartupError if it is impossible.
struct SynthFamily {
  std::shared_ptr<const GgufFile> metadata;
  ModelSpec spec;
};
SynthFamily read_family_shape(const FamilyShape& shape);

}  // namespace quire
