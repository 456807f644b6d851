// Finds equivalent frames of a stack, from which the same texts can follow: they return to the same states on
// equivalent frames (bisimulation). Pure function; one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "core/grammar/limits.h"
#include "core/grammar/machine/machine.h"

namespace quire::grammar {

// By frame: the frame that may replace it, or itself. Empty if none is found within a bounded number of rounds. Spends
// from the allowance.
std::vector<std::uint32_t> find_alike(const Stack& stack, const Threads& threads, Allowance& allowance);

}  // namespace quire::grammar
