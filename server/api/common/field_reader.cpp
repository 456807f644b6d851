#include "server/api/common/field_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/core.h>

#include "core/base/message_text.h"

namespace quire {

namespace {

const char* type_name(const Json& value) {
  if (value.is_number_integer() || value.is_binary()) return "an integer";
  if (value.is_number()) return "a decimal";
  if (value.is_string()) return "a string";
  if (value.is_boolean()) return "a boolean";
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return "null";
}

// A number of more than 64 bits is kept as its digits.
bool is_any_number(const Json& value) {
  return value.is_number() || value.is_binary();
}

std::optional<std::int64_t> whole_number(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::trunc(number) != number || std::abs(number) > 9.0e15) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

// Limits for unknown fields: shorter names are near to any other, longer ones are no misspelling.
constexpr std::size_t kMostWarnings = 4;
constexpr std::size_t kShortestMisspelling = 4;
constexpr std::size_t kLongestMisspelling = 48;
constexpr std::size_t kManyFields = 96;  // room for the fields that an API reads

bool is_field_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

}  // namespace

FieldReader::FieldReader(const Json& object, std::string path) : object_(&object), path_(std::move(path)) {
  members_.reserve(object.size());
  if (path_.empty()) asked_.reserve(kManyFields);
  for (const auto& [name, value] : object.get_ref<const Json::object_t&>()) {
    if (!value.is_null()) members_.emplace_back(name, &value);
  }
  std::sort(members_.begin(), members_.end());
}

const Json* FieldReader::find(FieldName name) const {
  if (path_.empty()) asked_.push_back(name);
  const auto found =
      std::lower_bound(members_.begin(), members_.end(), std::string_view(name),
                       [](const auto& member, std::string_view wanted) { return member.first < wanted; });
  return found == members_.end() || found->first != name ? nullptr : found->second;
}

std::vector<std::string> FieldReader::misspelt() const {
  std::vector<std::string> warnings;
  std::size_t num_compared = 0;
  for (const auto& [name, value] : object_->get_ref<const Json::object_t&>()) {
    if (warnings.size() == kMostWarnings || num_compared == kMostCompared) break;
    const bool is_plain = !value.is_null() && name.size() >= kShortestMisspelling &&
                          name.size() <= kLongestMisspelling && std::all_of(name.begin(), name.end(), is_field_letter);
    if (!is_plain || std::find(asked_.begin(), asked_.end(), std::string_view(name)) != asked_.end()) continue;
    ++num_compared;
    const auto likely = likely_name(name, asked_);
    if (likely) warnings.push_back(fmt::format("unknown field '{}'; did you mean '{}'?", path(name), *likely));
  }
  return warnings;
}

void FieldReader::fail(std::string_view name, std::string message, std::string code) {
  if (error_) return;
  error_ = Error{ErrorKind::kInvalidRequest, shortened(std::move(message), kMaxMessageBytes), std::move(code),
                 shortened(path(name), kMaxMessageBytes), std::nullopt};
}

void FieldReader::fail(Error error) {
  if (!error_) error_ = std::move(error);
}

void FieldReader::wrong_type(std::string_view name, std::string_view wanted, const Json& value) {
  fail(name,
       fmt::format("Invalid type for '{}': expected {}, but got {} instead", path(name), wanted, type_name(value)),
       "invalid_type");
}

void FieldReader::missing(std::string_view name) {
  fail(name, fmt::format("Missing required parameter: '{}'", path(name)), "missing_required_parameter");
}

bool FieldReader::is_object(std::string_view name, const Json& value) {
  if (!value.is_object()) wrong_type(name, "an object", value);
  return value.is_object();
}

std::optional<bool> FieldReader::boolean(FieldName name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  wrong_type(name, "a boolean", *value);
  return std::nullopt;
}

std::optional<double> FieldReader::number(FieldName name, double low, double high) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!is_any_number(*value)) {
    wrong_type(name, "a number", *value);
    return std::nullopt;
  }
  const double number = value->is_number() ? value->get<double>() : std::strtod(dump_json(*value).c_str(), nullptr);
  if (number >= low && number <= high) return number;
  const std::string range =
      std::isinf(high) ? fmt::format("at least {}", low) : fmt::format("between {} and {}", low, high);
  fail(name, fmt::format("Invalid value for '{}': {} is not {}", path(name), number, range));
  return std::nullopt;
}

std::optional<std::int64_t> FieldReader::integer(FieldName name, std::int64_t low, std::int64_t high) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!is_any_number(*value)) {
    wrong_type(name, "an integer", *value);
    return std::nullopt;
  }
  const auto number = whole_number(*value);
  if (!number && value->is_number_float()) {
    wrong_type(name, "an integer", *value);
    return std::nullopt;
  }
  if (number && *number >= low && *number <= high) return number;
  fail(name,
       fmt::format("Invalid value for '{}': {} is not between {} and {}", path(name), dump_json(*value), low, high));
  return std::nullopt;
}

std::optional<std::int64_t> FieldReader::integer(const fields::Field& row, std::int64_t most) {
  const bool is_bounded = row.type.low <= row.type.high;
  const auto low = is_bounded ? static_cast<std::int64_t>(row.type.low) : std::numeric_limits<std::int64_t>::min();
  return integer(row, low, is_bounded ? std::min(most, static_cast<std::int64_t>(row.type.high)) : most);
}

std::optional<double> FieldReader::value(const fields::Field& row) {
  if (row.type.kind == fields::Kind::kNumber) return number(row);
  if (row.type.kind == fields::Kind::kInteger) return integer(row);
  return boolean(row);
}

std::optional<std::string> FieldReader::string(FieldName name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  wrong_type(name, "a string", *value);
  return std::nullopt;
}

std::optional<std::string> FieldReader::short_string(FieldName name, std::size_t max_bytes) {
  const Json* value = find(name);
  if (value != nullptr && value->is_string() && value->get_ref<const std::string&>().size() > max_bytes) {
    fail(name, fmt::format("'{}' is longer than {} bytes", path(name), max_bytes));
    return std::nullopt;
  }
  return string(name);
}

std::optional<std::string> FieldReader::string(const fields::Field& row) {
  return row.type.most > 0 ? short_string(row, static_cast<std::size_t>(row.type.most)) : string(FieldName(row));
}

std::optional<std::string> FieldReader::word(FieldName name, std::span<const std::string_view> words) {
  auto value = string(name);
  if (!value || std::find(words.begin(), words.end(), *value) != words.end()) return value;
  std::string known;
  for (const auto candidate : words)
    known += fmt::format("{}'{}'", known.empty() ? "" : ", ", candidate);
  fail(name, fmt::format("Invalid value for '{}': '{}' is not one of {}", path(name), *value, known));
  return std::nullopt;
}

std::optional<std::string> FieldReader::word(FieldName name, const fields::FieldType& type) {
  if (!has(name)) return std::nullopt;
  return word(name, fields::parts_of(type.listed, "|"));
}

const Json* FieldReader::object(FieldName name) {
  const Json* value = find(name);
  return value != nullptr && is_object(name, *value) ? value : nullptr;
}

const Json* FieldReader::array(FieldName name) {
  const Json* value = find(name);
  if (value == nullptr || value->is_array()) return value;
  wrong_type(name, "an array", *value);
  return nullptr;
}

const Json* FieldReader::short_array(FieldName name, std::size_t max_count) {
  const Json* value = array(name);
  if (value == nullptr || value->size() <= max_count) return value;
  fail(name, fmt::format("Invalid value for '{}': more than {} elements", path(name), max_count));
  return nullptr;
}

std::optional<std::vector<std::string>> FieldReader::strings(FieldName name, std::size_t max_count) {
  const Json* value = short_array(name, max_count);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> list;
  for (const Json& element : *value) {
    if (!element.is_string()) {
      wrong_type(fmt::format("{}[{}]", std::string_view(name), list.size()), "a string", element);
      return std::nullopt;
    }
    list.push_back(element.get<std::string>());
  }
  return list;
}

std::optional<std::vector<std::string>> FieldReader::strings(const fields::Field& row) {
  return strings(row, static_cast<std::size_t>(row.type.most));
}

std::optional<std::vector<std::string>> FieldReader::string_or_strings(const fields::Field& row) {
  const Json* value = find(row);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::vector<std::string>{value->get<std::string>()};
  if (value->is_array()) return strings(row);
  wrong_type(row, "a string or an array of strings", *value);
  return std::nullopt;
}

std::optional<std::vector<std::int32_t>> FieldReader::integers(FieldName name, std::int32_t low, std::int32_t high,
                                                               std::size_t max_count) {
  const Json* value = short_array(name, max_count);
  if (value == nullptr) return std::nullopt;
  std::vector<std::int32_t> list;
  list.reserve(value->size());
  for (const Json& element : *value) {
    const auto number = whole_number(element);
    if (!number && !element.is_number_unsigned() && !element.is_binary()) {
      wrong_type(fmt::format("{}[{}]", std::string_view(name), list.size()), "an integer", element);
      return std::nullopt;
    }
    if (!number || *number < low || *number > high) {
      fail(
          fmt::format("{}[{}]", std::string_view(name), list.size()),
          fmt::format("Invalid value in '{}': {} is not between {} and {}", path(name), dump_json(element), low, high));
      return std::nullopt;
    }
    list.push_back(static_cast<std::int32_t>(*number));
  }
  return list;
}

void FieldReader::refuse(const fields::Field& row) {
  const Json* value = find(row);
  if (value == nullptr) return;
  const Json neutral = Json::parse(row.type.listed);
  if (std::find(neutral.begin(), neutral.end(), *value) == neutral.end()) refuse(row, row.note);
}

void FieldReader::refuse_from(const fields::FieldTable& table) {
  for (const fields::Field& row : table.rows) {
    if (row.support == fields::Support::kRefused) refuse(row);
  }
}

void FieldReader::check_accepted(const fields::FieldTable& table) {
  for (const fields::Field& row : table.rows) {
    if (row.support != fields::Support::kAccepted) continue;
    if (row.type.kind == fields::Kind::kInteger) integer(row);
    if (row.type.kind == fields::Kind::kWords) word(row);
    if (row.type.listed == "boolean") boolean(row);
    if (row.type.listed == "string") string(row);
    if (row.type.listed == "object") object(row);
  }
}

void FieldReader::refuse(FieldName name, std::string_view reason) {
  if (has(name)) fail(name, fmt::format("'{}' is not supported: {}", path(name), reason), "unsupported_parameter");
}

void FieldReader::refuse_unless(FieldName name, const Json& neutral, std::string_view reason) {
  const Json* value = find(name);
  if (value != nullptr && *value != neutral) refuse(name, reason);
}

void FieldReader::warn(std::string_view text) {
  if (warnings_.size() == kMaxWarnings) return;
  std::string& line = warnings_.emplace_back(text.substr(0, kMaxWarningBytes));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
}

void take_error(FieldReader& reader, FieldReader& inner) {
  if (!reader.error_) reader.error_ = inner.error_;  // its text names the field by the whole path
  for (const std::string& line : inner.take_warnings())
    reader.warn(line);
}

}  // namespace quire
