// A set of tokens as bits, the form that grammars fill: bit (id % 32) of word id / 32. Any thread; pure.
#pragma once

#include <cstdint>
#include <span>

namespace quire {

// Sets the logits of tokens that are not in the set to minus infinity; ids past the mask's end are not in it.
void apply_mask(std::span<float> logits, std::span<const std::uint32_t> mask);

}  // namespace quire
