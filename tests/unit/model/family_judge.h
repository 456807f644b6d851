// Judges a tiny model against the scalar reference in double precision. One thread at a time.
#pragma once

#include <filesystem>
#include <string>

#include "core/model/tools/synth.h"

namespace quire::test {

// The largest difference between the outputs of the model in `path` for some forty tokens and those computed from the
// weights of `gguf` by the arithmetic of `shape`, over the largest value; 1e9 for a NaN. Decoders: logits, in chunks;
// classifiers: scores; other encoders: hidden states.
double deviation_of(const std::filesystem::path& path, const SynthSpec& shape, const std::filesystem::path& gguf,
                    const std::string& isa);

}  // namespace quire::test
