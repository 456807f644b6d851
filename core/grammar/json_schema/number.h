// Numbers of a schema as automata over their JSON text. Any thread; results are immutable.
// Sets are taken within one universe of spellings: plain decimals, and normalised exponents ("1.5e-07") as encoders
// write them; so complements and intersections of value sets are exact.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/grammar/limits.h"
#include "core/grammar/regex/dfa.h"

namespace quire::grammar {

// (-1)^negative x 0.digits x 10^exponent, with no leading or trailing zeros in digits; zero has no digits.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;

  // The value of a JSON number's text; nothing where it is none or its exponent is beyond +-100000.
  static std::optional<Decimal> parse(std::string_view text);
  bool zero() const { return digits.empty(); }
  bool integer() const { return zero() || exponent >= static_cast<std::int64_t>(digits.size()); }
  bool operator==(const Decimal&) const = default;
  std::string text() const;
};

enum class Order { kLess, kEqual, kGreater };

// with_exponents: whether the universe has spellings with exponents (it has none where multipleOf must be decided).
DfaPtr all_numbers(bool with_exponents, Budget& budget);
DfaPtr integers(bool with_exponents, Budget& budget);
// Integers written without point and exponent.
DfaPtr spelled_integers(Budget& budget);
// Numbers above (kGreater) or below (kLess) the bound, or equal to it where inclusive.
DfaPtr bounded_numbers(const Decimal& bound, Order side, bool inclusive, bool with_exponents, Budget& budget);
DfaPtr equal_numbers(const std::vector<Decimal>& values, bool with_exponents, Budget& budget);
// Throws Refusal where the divisor needs too large an automaton. Plain decimals only.
DfaPtr multiples(const Decimal& divisor, Budget& budget);
// Everything that the JSON grammar calls a number.
DfaPtr json_numbers(Budget& budget);

}  // namespace quire::grammar
