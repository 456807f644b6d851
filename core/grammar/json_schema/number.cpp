#include "core/grammar/json_schema/number.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "core/grammar/regex/regex.h"

namespace quire::grammar {

namespace {

constexpr std::string_view kSymbols = "0123456789-+.eE";
constexpr int kMaxFraction = 20;  // digits after the point in spellings with an exponent
constexpr std::uint32_t kMaxModulus = 20'000;

// Enumerates the states of a hand-written automaton: step(state, symbol) -> optional state, accepts(state) -> bool.
template <class State, class Step, class Accepts>
DfaPtr explore(const State& start, Step step, Accepts accepts, Budget& budget) {
  std::vector<CharSet> sets;
  for (const char c : kSymbols)
    sets.emplace_back(static_cast<char32_t>(c), static_cast<char32_t>(c));
  std::vector<const CharSet*> pointers;
  for (const CharSet& set : sets)
    pointers.push_back(&set);
  Dfa dfa;
  dfa.alphabet = Alphabet(pointers);
  const std::size_t width = dfa.alphabet.num_classes();
  std::map<State, std::uint32_t> known{{start, 1}};
  std::vector<State> states{start, start};
  dfa.start = 1;
  dfa.accept.push_back(0);
  dfa.next.assign(width, 0);
  for (std::size_t i = 1; i < states.size(); ++i) {
    budget.spend(width);
    if (states.size() > budget.limits().max_automaton_states) throw Refusal("the number is constrained too finely");
    const State state = states[i];
    dfa.accept.push_back(accepts(state) ? 1 : 0);
    dfa.next.resize(dfa.next.size() + width, 0);
    for (const char symbol : kSymbols) {
      const std::optional<State> next = step(state, symbol);
      if (!next) continue;
      const auto [found, fresh] = known.try_emplace(*next, static_cast<std::uint32_t>(states.size()));
      if (fresh) states.push_back(*next);
      dfa.next[i * width + dfa.alphabet.class_of(static_cast<char32_t>(symbol))] = found->second;
    }
  }
  return std::make_shared<Dfa>(minimise(trim(std::move(dfa))));
}

enum class Phase : std::uint8_t { kStart, kSign, kZero, kInteger, kPoint, kFraction, kE, kESign, kExponent };

bool digit(char symbol) {
  return symbol >= '0' && symbol <= '9';
}

// Follows the spelling of a number; nothing if the symbol cannot follow.
std::optional<Phase> advance(Phase phase, char symbol) {
  switch (phase) {
    case Phase::kStart:
      if (symbol == '-') return Phase::kSign;
      [[fallthrough]];
    case Phase::kSign:
      if (digit(symbol)) return symbol == '0' ? Phase::kZero : Phase::kInteger;
      return std::nullopt;
    case Phase::kInteger:
      if (digit(symbol)) return Phase::kInteger;
      [[fallthrough]];
    case Phase::kZero:
      if (symbol == '.') return Phase::kPoint;
      if (symbol == 'e' || symbol == 'E') return Phase::kE;
      return std::nullopt;
    case Phase::kFraction:
      if (symbol == 'e' || symbol == 'E') return Phase::kE;
      [[fallthrough]];
    case Phase::kPoint: return digit(symbol) ? std::optional(Phase::kFraction) : std::nullopt;
    case Phase::kE:
      if (symbol == '+' || symbol == '-') return Phase::kESign;
      [[fallthrough]];
    case Phase::kESign:
    case Phase::kExponent: return digit(symbol) ? std::optional(Phase::kExponent) : std::nullopt;
  }
  return std::nullopt;
}

bool may_end(Phase phase) {
  return phase == Phase::kZero || phase == Phase::kInteger || phase == Phase::kFraction || phase == Phase::kExponent;
}

// Compares the number read with a bound, digit by digit.
struct Comparison {
  Phase phase = Phase::kStart;
  bool negative = false;
  Order order = Order::kEqual;  // order of the digits so far, read as a mantissa
  std::int32_t length = 0;  // digits before the point, up to one more than the bound has; below one, minus the zeros
                            // after the point
  std::int32_t place = 0;   // significant digits compared, up to one more than the bound has
  bool exponent_negative = false;
  bool exponent_over = false;  // the exponent's size is beyond the bound's
  std::int32_t exponent = 0;
  std::int32_t exponent_digits = 0;
  auto operator<=>(const Comparison&) const = default;
};

class Comparer {
 public:
  explicit Comparer(const Decimal& bound) : bound_(bound) {
    size_ = bound.exponent - 1;  // the exponent in normalised spelling
  }

  std::optional<Comparison> step(Comparison state, char symbol, bool with_exponents) const {
    const auto phase = advance(state.phase, symbol);
    if (!phase) return std::nullopt;
    if (*phase == Phase::kE && (!with_exponents || state.phase == Phase::kZero || state.length != 1))
      return std::nullopt;
    state.phase = *phase;
    switch (*phase) {
      case Phase::kSign: state.negative = true; break;
      case Phase::kZero: break;
      case Phase::kInteger:
        state.length = static_cast<std::int32_t>(
            std::min<std::int64_t>(state.length + 1, std::max<std::int64_t>(bound_.exponent, 1) + 1));
        compare(state, symbol);
        break;
      case Phase::kFraction: fraction(state, symbol); break;
      case Phase::kESign: state.exponent_negative = symbol == '-'; break;
      case Phase::kExponent: return exponent(state, symbol);
      default: break;
    }
    return state;
  }

  // The number's order relative to the bound.
  Order result(const Comparison& state) const {
    Order order = magnitude(state);
    if (bound_.zero()) {
      if (order == Order::kEqual) return order;
      return state.negative ? Order::kLess : Order::kGreater;
    }
    if (state.negative != bound_.negative) return state.negative ? Order::kLess : Order::kGreater;
    if (!state.negative || order == Order::kEqual) return order;
    return order == Order::kLess ? Order::kGreater : Order::kLess;
  }

 private:
  void compare(Comparison& state, char symbol) const {
    const auto count = static_cast<std::int32_t>(bound_.digits.size());
    if (state.place < count) {
      const char wanted = bound_.digits[static_cast<std::size_t>(state.place)];
      if (state.order == Order::kEqual && symbol != wanted)
        state.order = symbol < wanted ? Order::kLess : Order::kGreater;
      ++state.place;
      if (state.order != Order::kEqual) state.place = count;  // decided: later digits do not matter
    } else {
      if (state.order == Order::kEqual && symbol != '0') state.order = Order::kGreater;
      state.place = std::max(state.place, 1);
    }
  }

  void fraction(Comparison& state, char symbol) const {
    const bool leading = state.length <= 0 && state.place == 0;
    if (leading && symbol == '0') {
      state.length = static_cast<std::int32_t>(
          std::max<std::int64_t>(state.length - 1, std::min<std::int64_t>(bound_.exponent, 0) - 1));
      return;
    }
    compare(state, symbol);
  }

  std::optional<Comparison> exponent(Comparison state, char symbol) const {
    if (++state.exponent_digits > 3) return std::nullopt;
    const std::int64_t limit = size_ < 0 ? -size_ : size_;
    const std::int64_t value = std::int64_t{state.exponent} * 10 + (symbol - '0');
    if (value > limit) state.exponent_over = true;
    state.exponent = state.exponent_over ? 0 : static_cast<std::int32_t>(value);
    return state;
  }

  Order magnitude(const Comparison& state) const {
    if (bound_.zero()) return state.place == 0 && state.length <= 0 ? Order::kEqual : Order::kGreater;
    if (state.length <= 0 && state.place == 0) return Order::kLess;  // zero
    std::int64_t size = state.length - 1;                            // power of ten of the first digit that is not zero
    if (state.phase == Phase::kExponent) {
      const std::int64_t limit = size_ < 0 ? -size_ : size_;
      const std::int64_t value = state.exponent_over ? limit + 1 : state.exponent;
      size = state.exponent_negative ? -value : value;
    }
    if (size != size_) return size < size_ ? Order::kLess : Order::kGreater;
    if (state.order == Order::kEqual && state.place < static_cast<std::int32_t>(bound_.digits.size()))
      return Order::kLess;
    return state.order;
  }

  Decimal bound_;
  std::int64_t size_;
};

}  // namespace

DfaPtr json_numbers(Budget& budget) {
  return std::make_shared<Dfa>(
      build_full(parse_regex(R"(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?)", budget), budget));
}

DfaPtr all_numbers(bool with_exponents, Budget& budget) {
  const std::string plain = R"(-?(0|[1-9][0-9]*)(\.[0-9]+)?)";
  const std::string normal = R"(|-?[1-9](\.[0-9]{1,20})?[eE][+-]?[0-9]{1,3})";
  return std::make_shared<Dfa>(build_full(parse_regex(with_exponents ? plain + normal : plain, budget), budget));
}

DfaPtr spelled_integers(Budget& budget) {
  return std::make_shared<Dfa>(build_full(parse_regex("-?(0|[1-9][0-9]*)", budget), budget));
}

DfaPtr integers(bool with_exponents, Budget& budget) {
  // Spellings with an exponent: at least as many powers of ten as digits after the point, zeros at the end not
  // counted.
  struct State {
    Phase phase = Phase::kStart;
    std::int32_t length = 0;    // digits before the point, up to 2
    std::int32_t written = 0;   // digits after the point
    std::int32_t wanted = 0;    // the same up to the last digit that is not zero
    std::int32_t exponent = 0;  // up to kMaxFraction
    std::int32_t exponent_digits = 0;
    bool negative = false;
    auto operator<=>(const State&) const = default;
  };
  const auto step = [&](State state, char symbol) -> std::optional<State> {
    const auto phase = advance(state.phase, symbol);
    if (!phase) return std::nullopt;
    if (*phase == Phase::kE && (!with_exponents || state.phase == Phase::kZero || state.length != 1))
      return std::nullopt;
    state.phase = *phase;
    if (*phase == Phase::kInteger) state.length = std::min(state.length + 1, 2);
    if (*phase == Phase::kE) state.written = 0;
    if (*phase == Phase::kESign) state.negative = symbol == '-';
    if (*phase == Phase::kFraction) {
      if (symbol != '0' && (state.length != 1 || !with_exponents)) return std::nullopt;
      if (state.length != 1) return state;
      if (++state.written > kMaxFraction) {
        if (state.wanted > 0 || symbol != '0') return std::nullopt;
        state.written = kMaxFraction + 1;
      }
      if (symbol != '0') state.wanted = state.written;
    }
    if (*phase == Phase::kE && state.written > kMaxFraction) return std::nullopt;
    if (*phase == Phase::kExponent) {
      if (++state.exponent_digits > 3) return std::nullopt;
      state.exponent = std::min(state.exponent * 10 + (symbol - '0'), kMaxFraction);
    }
    return state;
  };
  const auto accepts = [](const State& state) {
    if (!may_end(state.phase)) return false;
    const std::int32_t exponent = state.phase != Phase::kExponent ? 0
                                  : state.negative                ? -state.exponent
                                                                  : state.exponent;
    return exponent >= state.wanted;
  };
  return explore(State{}, step, accepts, budget);
}

DfaPtr bounded_numbers(const Decimal& bound, Order side, bool inclusive, bool with_exponents, Budget& budget) {
  if (bound.digits.size() > 64 || bound.exponent > 400 || bound.exponent < -400) {
    throw Refusal("the bound of a number is too large or too fine");
  }
  const Comparer comparer(bound);
  return explore(
      Comparison{}, [&](const Comparison& state, char symbol) { return comparer.step(state, symbol, with_exponents); },
      [&](const Comparison& state) {
        if (!may_end(state.phase)) return false;
        const Order order = comparer.result(state);
        return order == side || (inclusive && order == Order::kEqual);
      },
      budget);
}

DfaPtr equal_numbers(const std::vector<Decimal>& values, bool with_exponents, Budget& budget) {
  std::string pattern;
  for (const Decimal& value : values) {
    if (!pattern.empty()) pattern += '|';
    if (value.zero()) {
      pattern += R"(-?0(\.0+)?)";
      continue;
    }
    if (value.exponent > 400 || value.exponent < -400)
      throw Refusal("a number of an enumeration is too large or too fine");
    const std::string sign = value.negative ? "-" : "";
    const auto count = static_cast<std::int64_t>(value.digits.size());
    const std::string zeros(static_cast<std::size_t>(std::max<std::int64_t>(value.exponent - count, 0)), '0');
    if (value.exponent >= count) {
      pattern += sign + value.digits + zeros + R"((\.0+)?)";
    } else if (value.exponent > 0) {
      const auto whole = static_cast<std::size_t>(value.exponent);
      pattern += sign + value.digits.substr(0, whole) + R"(\.)" + value.digits.substr(whole) + "0*";
    } else {
      pattern += sign + R"(0\.)" + std::string(static_cast<std::size_t>(-value.exponent), '0') + value.digits + "0*";
    }
    if (!with_exponents || count > kMaxFraction + 1) continue;
    const std::string fraction = value.digits.substr(1);
    const std::string pad = std::to_string(kMaxFraction - static_cast<int>(fraction.size()));
    pattern += "|" + sign + value.digits[0];
    pattern += fraction.empty() ? R"((\.0{1,20})?)" : R"(\.)" + fraction + "0{0," + pad + "}";
    const std::int64_t size = value.exponent - 1;
    const std::string power = std::to_string(size < 0 ? -size : size);
    const std::string room = "0{0," + std::to_string(3 - static_cast<int>(power.size())) + "}";
    pattern += std::string("[eE]") + (size == 0 ? "[+-]?" : size < 0 ? "-" : "[+]?") + room + power;
  }
  if (pattern.empty()) return nullptr;
  return std::make_shared<Dfa>(build_full(parse_regex(pattern, budget), budget));
}

DfaPtr multiples(const Decimal& divisor, Budget& budget) {
  const auto count = static_cast<std::int64_t>(divisor.digits.size());
  const std::int64_t scale = std::max<std::int64_t>(count - divisor.exponent, 0);  // digits after the point
  std::uint64_t modulus = 0;
  for (const char c : divisor.digits) {
    modulus = modulus * 10 + static_cast<std::uint64_t>(c - '0');
    if (modulus > kMaxModulus) throw Refusal("multipleOf with this divisor is not supported");
  }
  for (std::int64_t i = count; i < divisor.exponent; ++i) {
    modulus *= 10;
    if (modulus > kMaxModulus) throw Refusal("multipleOf with this divisor is not supported");
  }
  if (scale > 30) throw Refusal("multipleOf with this divisor is not supported");
  struct State {
    Phase phase = Phase::kStart;
    std::uint64_t rest = 0;
    std::int64_t places = 0;
    auto operator<=>(const State&) const = default;
  };
  const auto step = [&](State state, char symbol) -> std::optional<State> {
    const auto phase = advance(state.phase, symbol);
    if (!phase || *phase == Phase::kE) return std::nullopt;
    state.phase = *phase;
    if (!digit(symbol)) return state;
    if (*phase == Phase::kFraction && state.places == scale) return symbol == '0' ? std::optional(state) : std::nullopt;
    if (*phase == Phase::kFraction) ++state.places;
    state.rest = (state.rest * 10 + static_cast<std::uint64_t>(symbol - '0')) % modulus;
    return state;
  };
  const auto accepts = [&](const State& state) {
    if (!may_end(state.phase)) return false;
    std::uint64_t rest = state.rest;
    for (std::int64_t i = state.places; i < scale; ++i)
      rest = rest * 10 % modulus;
    return rest == 0;
  };
  return explore(State{}, step, accepts, budget);
}

}  // namespace quire::grammar
