// Frames of a stack from which the same texts lead on: those that return to the same states on frames that are alike
// (bisimulation). Pure function; one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "core/grammar/limits.h"
#include "core/grammar/machine/machine.h"

namespace quire::grammar {

// By frame: the frame that may stand for it, itself where there is no other. Empty where none is found within a bounded
// number of rounds. Spends of the allowance.
std::vector<std::uint32_t> find_alike(const Stack& stack, const Threads& threads, Allowance& allowance);

}  // namespace quire::grammar
