// Decimal: the exact value of a JSON number's text. Value type; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::grammar {

// (-1)^negative x 0.digits x 10^exponent, with no leading or trailing zeros in digits; zero has no digits.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;

  // The value of a JSON number's text; nothing if it is no number or its exponent is beyond +-100000.
  static std::optional<Decimal> parse(std::string_view text);
  bool zero() const { return digits.empty(); }
  bool integer() const { return zero() || exponent >= static_cast<std::int64_t>(digits.size()); }
  bool operator==(const Decimal&) const = default;
  std::string text() const;
};

}  // namespace quire::grammar
