// Reads GGUF metadata by kind, independent of the type that a converter chose.
#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/formats/gguf/gguf.h"

namespace quire {

namespace {

template <class T>
inline constexpr bool kIsList = false;
template <class T>
inline constexpr bool kIsList<std::vector<T>> = true;

// Calls visit with the value, or with the only element of a list.
template <class Visit>
void visit_single(const GgufValue& value, const Visit& visit) {
  std::visit(
      [&](const auto& held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (!kIsList<Held>) {
          visit(held);
        } else if (held.size() == 1) {
          const typename Held::value_type only = held.front();  // vector<bool> has proxies
          visit(only);
        }
      },
      value);
}

template <class T>
std::optional<T> parsed(std::string_view text) {
  T out{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(out) : std::nullopt;
}

std::optional<std::int64_t> whole(double value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53: whole numbers up to here are exact
  const bool is_whole = std::fabs(value) <= kExact && std::trunc(value) == value;
  return is_whole ? std::optional(static_cast<std::int64_t>(value)) : std::nullopt;
}

template <class T>
T wanted(std::optional<T> converted, const GgufFile& file, std::string_view key, const GgufValue& value,
         const char* kind) {
  if (converted) return *converted;
  throw StartupError(
      fmt::format("{}: the metadata key '{}' is {}, not {}", file.where(), printable(key), described(value), kind));
}

}  // namespace

std::optional<std::int64_t> integer_of(const GgufValue& value) {
  std::optional<std::int64_t> out;
  visit_single(value, [&](const auto& held) {
    using Held = std::decay_t<decltype(held)>;
    if constexpr (std::is_same_v<Held, double>) {
      out = whole(held);
    } else if constexpr (std::is_same_v<Held, std::string_view>) {
      out = parsed<std::int64_t>(held);
    } else if constexpr (std::is_same_v<Held, bool>) {
      out = held ? 1 : 0;
    } else if (std::in_range<std::int64_t>(held)) {
      out = static_cast<std::int64_t>(held);
    }
  });
  return out;
}

std::optional<double> number_of(const GgufValue& value) {
  std::optional<double> out;
  visit_single(value, [&](const auto& held) {
    using Held = std::decay_t<decltype(held)>;
    if constexpr (std::is_same_v<Held, std::string_view>) {
      out = parsed<double>(held);
    } else if constexpr (!std::is_same_v<Held, bool>) {
      out = static_cast<double>(held);
    }
  });
  return out;
}

std::optional<bool> flag_of(const GgufValue& value) {
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    if (*text == "true" || *text == "True") return true;
    if (*text == "false" || *text == "False") return false;
  }
  const auto number = integer_of(value);
  return number == 0 || number == 1 ? std::optional(*number == 1) : std::nullopt;
}

bool is_list(const GgufValue& value) {
  return std::visit([](const auto& held) { return kIsList<std::decay_t<decltype(held)>>; }, value);
}

std::string described(const GgufValue& value) {
  return std::visit(
      [](const auto& held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (kIsList<Held>) {
          return fmt::format("a list of {}", held.size());
        } else if constexpr (std::is_same_v<Held, std::string_view>) {
          return fmt::format("the text '{}'", printable(held));
        } else {
          return fmt::format("{}", held);
        }
      },
      value);
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = metadata().find(key);
  return found == metadata().end() ? nullptr : &found->second;
}

std::optional<std::int64_t> GgufFile::get_int(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  return wanted(integer_of(*value), *this, key, *value, "a whole number");
}

std::optional<double> GgufFile::get_float(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  return wanted(number_of(*value), *this, key, *value, "a number");
}

std::optional<bool> GgufFile::get_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  return wanted(flag_of(*value), *this, key, *value, "true or false");
}

std::optional<std::string_view> GgufFile::get_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* text = std::get_if<std::string_view>(value);
  return wanted(text == nullptr ? std::nullopt : std::optional(*text), *this, key, *value, "a string");
}

const std::vector<std::string_view>* GgufFile::get_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* list = std::get_if<std::vector<std::string_view>>(value);
  return wanted(list == nullptr ? std::nullopt : std::optional(list), *this, key, *value, "a list of strings");
}

}  // namespace quire
