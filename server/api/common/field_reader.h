// FieldReader: takes typed values out of a JSON object and remembers the first error, named by its path. One thread at
// a time. null counts as absent everywhere, as OpenAI's clients send it so. A field of a body is read by its row
// (server/api/fields), which has its range and the reason of its refusal; members of inner objects are read by name.
// Unread members are ignored, and named by misspelt() if they resemble one that was read.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/work_limit.h"
#include "server/api/common/json.h"
#include "server/api/fields/field.h"

namespace quire {

inline constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

// The name of a field to read: a row's, a literal, or else something that outlives the reader; so not a std::string.
class FieldName {
 public:
  constexpr FieldName(const char* name) : name_(name) {}
  constexpr FieldName(const fields::Field& row) : name_(row.name) {}
  constexpr operator std::string_view() const { return name_; }

 private:
  std::string_view name_;
};

class FieldReader {
 public:
  static constexpr std::size_t kMaxWarnings = 8;
  static constexpr std::size_t kMaxWarningBytes = 200;
  static constexpr std::size_t kMaxMessageBytes = 1'000;  // limit for an error's message and its field's path
  static constexpr std::size_t kMostCompared = 32;

  // `object` must be an object and outlive the reader; `path` goes before the names of its members ("messages[0].").
  explicit FieldReader(const Json& object, std::string path = {});

  const Json* find(FieldName name) const;  // nullptr where absent or null
  bool has(FieldName name) const { return find(name) != nullptr; }

  std::optional<bool> boolean(FieldName name);
  bool boolean(FieldName name, bool fallback) { return boolean(name).value_or(fallback); }
  std::optional<double> number(FieldName name, double low, double high);
  std::optional<double> number(const fields::Field& row) { return number(row, row.type.low, row.type.high); }
  // Whole numbers, also written as 3.0.
  std::optional<std::int64_t> integer(FieldName name, std::int64_t low, std::int64_t high);
  // `most`: a further upper bound beside the row's.
  std::optional<std::int64_t> integer(const fields::Field& row,
                                      std::int64_t most = std::numeric_limits<std::int64_t>::max());
  // A number, an integer or a boolean (1 or 0) by the row's type.
  std::optional<double> value(const fields::Field& row);
  std::optional<std::string> string(FieldName name);
  std::optional<std::string> string(const fields::Field& row);
  // Reads a text of at most max_bytes: for texts that are kept longer than the request is read.
  std::optional<std::string> short_string(FieldName name, std::size_t max_bytes);
  // Reads one of the listed words.
  std::optional<std::string> word(FieldName name, std::span<const std::string_view> words);
  std::optional<std::string> word(FieldName name, std::initializer_list<std::string_view> words) {
    return word(name, std::span(words.begin(), words.size()));
  }
  // Reads one of the words that a type lists, under any name.
  std::optional<std::string> word(FieldName name, const fields::FieldType& type);
  std::optional<std::string> word(const fields::Field& row) { return word(row, row.type); }
  const Json* object(FieldName name);
  const Json* array(FieldName name);
  std::optional<std::vector<std::string>> strings(FieldName name, std::size_t max_count);
  std::optional<std::vector<std::string>> strings(const fields::Field& row);
  // Reads a string or an array of strings.
  std::optional<std::vector<std::string>> string_or_strings(const fields::Field& row);
  std::optional<std::vector<std::int32_t>> integers(FieldName name, std::int32_t low, std::int32_t high,
                                                    std::size_t max_count);

  // Refuses the field if it is present with a value that the row does not list; the row's note is the reason.
  void refuse(const fields::Field& row);
  // Calls refuse() for each row of the table that is refused.
  void refuse_from(const fields::FieldTable& table);
  // Checks the values of a table's fields that are accepted without an effect.
  void check_accepted(const fields::FieldTable& table);
  // Refuses the field if it is present.
  void refuse(FieldName name, std::string_view reason);
  // Refuses the field if it is present with any value but `neutral`.
  void refuse_unless(FieldName name, const Json& neutral, std::string_view reason);

  // Records an error about a member that the caller read itself.
  void fail(std::string_view name, std::string message, std::string code = "invalid_value");
  // Records an error that is not the request's fault.
  void fail(Error error);
  void missing(std::string_view name);
  // Returns whether a member that the caller read itself is an object; records an error if not.
  bool is_object(std::string_view name, const Json& value);
  std::string path(std::string_view name) const { return path_ + std::string(name); }
  // The path of the object itself.
  std::string own_path() const { return path_.ends_with('.') ? path_.substr(0, path_.size() - 1) : path_; }

  // Records that something in the request is ignored; the response's header and the log show it. At most kMaxWarnings
  // are kept, each a line of printable ASCII.
  void warn(std::string_view text);
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

  const std::optional<Error>& error() const { return error_; }
  // "unknown field 'max_tokns'; did you mean 'max_tokens'?" for each unread member that resembles a name that was read;
  // a few at most, in printable ASCII. Only the first kMostCompared unread members are compared. To be called on the
  // outermost object (its path is empty) after everything was read.
  std::vector<std::string> misspelt() const;
  // The names read so far, of the outermost object only.
  const std::vector<std::string_view>& asked() const { return asked_; }
  // Limit for costly work on the read values.
  const WorkLimit& limit() const { return limit_; }
  void set_limit(WorkLimit limit) { limit_ = std::move(limit); }
  // Takes over the error and the warnings of a reader of an inner object, if it has any.
  friend void take_error(FieldReader& reader, FieldReader& inner);

 private:
  const Json* short_array(FieldName name, std::size_t max_count);
  void wrong_type(std::string_view name, std::string_view wanted, const Json& value);

  // Sorted by name, so that a lookup costs the same for any names that a client chooses.
  std::vector<std::pair<std::string_view, const Json*>> members_;
  const Json* object_;
  mutable std::vector<std::string_view> asked_;  // see asked()
  std::string path_;
  std::optional<Error> error_;
  std::vector<std::string> warnings_;
  WorkLimit limit_;
};

}  // namespace quire
