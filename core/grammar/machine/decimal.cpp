#include "core/grammar/machine/decimal.h"

#include <algorithm>

namespace quire::grammar {

namespace {

constexpr std::int64_t kMaxExponent = 100'000;

bool is_digit(char symbol) {
  return symbol >= '0' && symbol <= '9';
}

}  // namespace

std::optional<Decimal> Decimal::parse(std::string_view text) {
  Decimal result;
  std::size_t i = 0;
  if (i < text.size() && text[i] == '-') {
    result.negative = true;
    ++i;
  }
  std::int64_t point = 0;
  bool seen_point = false;
  bool any = false;
  for (; i < text.size() && (is_digit(text[i]) || (text[i] == '.' && !seen_point)); ++i) {
    if (text[i] == '.') {
      seen_point = true;
      continue;
    }
    any = true;
    if (!seen_point) ++point;
    result.digits.push_back(text[i]);
  }
  if (!any) return std::nullopt;
  std::int64_t exponent = 0;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    const bool minus = i < text.size() && text[i] == '-';
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    if (i == text.size()) return std::nullopt;
    for (; i < text.size() && is_digit(text[i]); ++i)
      exponent = std::min(exponent * 10 + (text[i] - '0'), kMaxExponent + 1);
    if (exponent > kMaxExponent) return std::nullopt;
    if (minus) exponent = -exponent;
  }
  if (i != text.size()) return std::nullopt;
  const std::size_t leading = std::min(result.digits.find_first_not_of('0'), result.digits.size());
  result.digits.erase(0, leading);
  result.exponent = point - static_cast<std::int64_t>(leading) + exponent;
  while (!result.digits.empty() && result.digits.back() == '0')
    result.digits.pop_back();
  if (result.zero()) result = Decimal{};
  return result;
}

std::string Decimal::text() const {
  return (negative ? "-" : "") + ("0." + digits) + "e" + std::to_string(exponent);
}

}  // namespace quire::grammar
