// Numbers of a schema as automata over their JSON text. Any thread; results are immutable.
// Sets are taken within one universe of spellings: plain decimals, and normalised exponents ("1.5e-07") as encoders
// write them; so complements and intersections of value sets are exact.
#pragma once

#include <cstdint>
#include <vector>

#include "core/grammar/limits.h"
#include "core/grammar/machine/decimal.h"
#include "core/grammar/regex/dfa.h"

namespace quire::grammar {

enum class Order { kLess, kEqual, kGreater };

// with_exponents: whether the universe includes spellings with exponents (not if multipleOf must be decided).
DfaPtr all_numbers(bool with_exponents, Budget& budget);
DfaPtr integers(bool with_exponents, Budget& budget);
// Integers written without point and exponent.
DfaPtr spelled_integers(Budget& budget);
// Numbers above (kGreater) or below (kLess) the bound, or equal to it if inclusive.
DfaPtr bounded_numbers(const Decimal& bound, Order side, bool inclusive, bool with_exponents, Budget& budget);
DfaPtr equal_numbers(const std::vector<Decimal>& values, bool with_exponents, Budget& budget);
// Throws Refusal if the divisor needs too large an automaton. Plain decimals only.
DfaPtr multiples(const Decimal& divisor, Budget& budget);
// All numbers of the JSON grammar.
DfaPtr json_numbers(Budget& budget);

}  // namespace quire::grammar
