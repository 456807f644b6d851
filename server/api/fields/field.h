// A field of the API as one row: its name, type, range, support and reason, and the member of SamplingParams that it
// sets. FieldReader reads, checks and refuses by rows; /openapi.json, server/API.md and tests are made from the same
// ones. Immutable; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/sampling_ranges.h"
#include "core/sampling/sampling_params.h"

namespace quire::fields {

enum class Support {
  kSupported,    // the answer depends on it
  kAccepted,     // accepted without an effect on the answer
  kConditional,  // supported under the note's condition; the example alone breaks it
  kRefused,      // 400, with the note as the reason, unless it has one of the type's values
};

// The values that a field takes. null counts as absent.
struct FieldType {
  enum class Kind { kTypes, kWords, kOnly, kNumber, kInteger, kTexts, kTextOrTexts, kTokenIds };
  Kind kind = Kind::kTypes;
  std::string_view listed =
      {};            // kTypes: JSON's types, kWords: texts, both divided by '|'; kOnly: a JSON array of values
  double low = 0.0;  // kNumber, kInteger: bounds, where low <= high
  double high = -1.0;
  std::int32_t most = 0;  // kTexts, kTextOrTexts: largest number of texts; kTypes: bytes of a text, 0: any
};

using Kind = FieldType::Kind;
inline constexpr double kMostInt32 = 2147483647.0;
inline constexpr double kMostChoices = 128.0;         // choices of one prompt
inline constexpr double kMostLogprobs = 20.0;         // likeliest tokens of one place
inline constexpr std::int32_t kMostStops = 64;        // strings that end a text
inline constexpr std::int32_t kMostHintBytes = 1024;  // limit of `user` and similar names

constexpr FieldType one_of(std::string_view types) {
  return {.listed = types};
}
constexpr FieldType boolean() {
  return one_of("boolean");
}
constexpr FieldType text(std::int32_t most_bytes = 0) {
  return {.listed = "string", .most = most_bytes};
}
constexpr FieldType object() {
  return one_of("object");
}
constexpr FieldType array() {
  return one_of("array");
}
constexpr FieldType words(std::string_view listed) {
  return {.kind = Kind::kWords, .listed = listed};
}
constexpr FieldType only(std::string_view values) {
  return {.kind = Kind::kOnly, .listed = values};
}
constexpr FieldType number(double low, double high) {
  return {.kind = Kind::kNumber, .low = low, .high = high};
}
constexpr FieldType number(const SamplingRange& range) {
  return number(range.low, range.high);
}
constexpr FieldType integer(double low, double high) {
  return {.kind = Kind::kInteger, .low = low, .high = high};
}
constexpr FieldType integer(const SamplingRange& range) {
  return integer(range.low, range.high);
}
constexpr FieldType integer() {
  return {.kind = Kind::kInteger};
}
constexpr FieldType texts(std::int32_t most) {
  return {.kind = Kind::kTexts, .most = most};
}
constexpr FieldType text_or_texts(std::int32_t most) {
  return {.kind = Kind::kTextOrTexts, .most = most};
}
constexpr FieldType token_ids() {
  return {.kind = Kind::kTokenIds};
}

// The member of SamplingParams that the value is stored in, as a number. Null functions: an endpoint's code reads the
// field.
struct SamplingTarget {
  void (*set)(SamplingParams& sampling, double value) = nullptr;
  double (*get)(const SamplingParams& sampling) = nullptr;  // an absent count is -1
};

struct Field {
  std::string_view name;
  FieldType type;
  std::string_view example;  // JSON
  std::string_view note = {};
  Support support = Support::kSupported;
  SamplingTarget target = {};

  constexpr operator std::string_view() const { return name; }
};

// A refused field with its reason; the values in the JSON array `neutral` are accepted.
constexpr Field refused(std::string_view name, std::string_view example, std::string_view reason,
                        std::string_view neutral = "[]") {
  return {name, only(neutral), example, reason, Support::kRefused};
}

// A field whose value is a member of SamplingParams: the member, or a member of a member.
template <auto First, auto... Rest>
constexpr Field sampling(std::string_view name, FieldType type, std::string_view example, std::string_view note = {}) {
  const auto set = [](SamplingParams& params, double value) {
    auto& member = ((params.*First).*....*Rest);
    using Member = std::remove_reference_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, std::optional<std::int32_t>>) {
      member = static_cast<std::int32_t>(value);
    } else {
      member = static_cast<Member>(value);
    }
  };
  const auto get = [](const SamplingParams& params) {
    const auto& member = ((params.*First).*....*Rest);
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, std::optional<std::int32_t>>) {
      return static_cast<double>(member.value_or(-1));
    } else {
      return static_cast<double>(member);
    }
  };
  return {name, type, example, note, Support::kSupported, {set, get}};
}

// The row with this name. A missing name is a compile error.
consteval Field row_of(std::span<const Field> rows, std::string_view name) {
  for (const Field& row : rows) {
    if (row.name == name) return row;
  }
  throw "no such row";
}

template <std::size_t... num_rows>
consteval std::array<Field, (num_rows + ...)> joined(const Field (&... lists)[num_rows]) {
  std::array<Field, (num_rows + ...)> all;
  std::size_t next = 0;
  const auto add = [&](std::span<const Field> rows) {
    for (const Field& row : rows)
      all[next++] = row;
  };
  (add(lists), ...);
  return all;
}

// The fields of a request's body at some paths: a table of API.md.
struct FieldTable {
  std::string_view title;
  std::string_view inside;  // member of the body that holds the fields; empty: the body itself
  std::string_view paths;   // divided by ", "
  std::span<const Field> rows;
};

// All tables, in the page's order.
std::span<const FieldTable* const> field_tables();

// Splits a text at its dividers; an empty text gives nothing.
std::vector<std::string_view> parts_of(std::string_view text, std::string_view divider);

}  // namespace quire::fields
