// The API's reference as data: fields with their types, ranges, support and examples, and the operations that take
// them. /openapi.json and the tables of server/API.md are made from it. Immutable; any thread. Invariant: a row
// describes the endpoint's reader; tests send every row's example, and values out of its range.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace quire::reference {

enum class Support {
  kSupported,    // the answer depends on it
  kAccepted,     // accepted without an effect on the answer
  kConditional,  // supported under the condition that the note names; the example alone is refused
  kRefused,      // 400 unless it has one of the type's values
};

// Values of a field, besides null, which counts as absent.
struct FieldType {
  enum class Kind { kTypes, kWords, kOnly, kNumber, kInteger, kTexts, kTextOrTexts, kTokenIds };
  Kind kind = Kind::kTypes;
  std::string_view listed =
      {};            // kTypes: JSON's types, kWords: texts, both divided by '|'; kOnly: a JSON array of values
  double low = 0.0;  // kNumber, kInteger: bounds, where low <= high
  double high = -1.0;
  std::int32_t most = 0;  // kTexts, kTextOrTexts: largest number of texts
};

using Kind = FieldType::Kind;
inline constexpr double kMostInt32 = 2147483647.0;

constexpr FieldType one_of(std::string_view types) {
  return {.listed = types};
}
constexpr FieldType boolean() {
  return one_of("boolean");
}
constexpr FieldType text() {
  return one_of("string");
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
constexpr FieldType number() {
  return {.kind = Kind::kNumber};
}
constexpr FieldType integer(double low, double high) {
  return {.kind = Kind::kInteger, .low = low, .high = high};
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

struct FieldRow {
  std::string_view name;
  FieldType type;
  Support support = Support::kSupported;
  std::string_view example;  // JSON
  std::string_view note;
};

// A table of the page: fields of the bodies posted to each of the paths.
struct FieldTable {
  std::string_view title;
  std::string_view inside;  // the member of the body that the fields stand in; empty: the body itself
  std::span<const std::string_view> paths;
  std::span<const FieldRow> rows;
};

enum class Audience { kOpen, kKey, kMetrics, kAdmin };
// kPage: no JSON. kEvents: an object, or server-sent events where `stream` is true. kLines: Ollama's lines of JSON.
enum class AnswerForm { kJson, kEvents, kLines, kList, kText };
enum class ErrorShape { kOpenAi, kAnthropic, kOllama };

struct OperationRow {
  std::string_view method;
  std::string_view paths;  // divided by ", "; the first is the one to use, the others do the same
  std::string_view text;
  std::string_view tag;
  std::span<const FieldTable* const> body = {};  // the first table's row of a name counts; empty: no body
  std::string_view required = {};                // fields of the body, divided by ", "
  AnswerForm answer = AnswerForm::kJson;
  std::string_view members = {};  // fields of every answer, divided by ", "
  std::string_view query = {};    // parameters, divided by ", "
  Audience audience = Audience::kKey;
  ErrorShape errors = ErrorShape::kOpenAi;
};

// All tables of the page, in its order.
std::span<const FieldTable* const> field_tables();
std::vector<OperationRow> operations();

}  // namespace quire::reference
