// The types of configuration values: each function makes a ConfigKey of a type for a field. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/keys.h"

namespace quire::config_types {

template <class T>
using Field = T& (*)(Config&);

struct Description {
  std::string path;
  std::string help;
  std::vector<std::string> flags = {};
};

struct Range {
  std::int64_t min = 0;
  std::int64_t max = std::numeric_limits<std::int32_t>::max();
  std::int64_t multiple_of = 1;
};

// Values that a scalar can be read as; nothing if it cannot.
std::optional<bool> read_boolean(const ConfigValue& value);
std::optional<std::int64_t> read_integer(const ConfigValue& value);
std::optional<double> read_number(const ConfigValue& value);
std::optional<std::int64_t> read_size(const ConfigValue& value);                   // bytes: 1048576, 512KiB, 4GiB, 10MB
std::optional<std::chrono::milliseconds> read_duration(const ConfigValue& value);  // 500ms, 30s, 5m, 1h

// Turns a flag's "name=alice,env=KEY" into the mapping that a file would have.
ConfigValue mapping_of_flag(const std::string& text);

std::string show_size(std::int64_t bytes);
std::string show_duration(std::chrono::milliseconds duration);
std::string show_text(std::string_view text);

std::string describe(const Range& range);
bool contains(const Range& range, std::int64_t value);
// "must be one of a, b, c; did you mean 'b'?"
std::string choice_complaint(const std::vector<std::string>& names, const ConfigValue& value);

template <class Int>
ConfigKey integer(Description description, Field<Int> field, Range range) {
  ConfigKey key{description.path, description.help, description.flags, "an integer " + describe(range), false, {}, {}};
  key.set = [field, range, accepts = key.accepts](Config& config, const ConfigValue& value) -> std::string {
    const auto number = read_integer(value);
    if (!number || !contains(range, *number)) return "must be " + accepts;
    field(config) = static_cast<Int>(*number);
    return {};
  };
  key.get = [field](Config& config) { return std::to_string(field(config)); };
  return key;
}

template <class Enum>
ConfigKey choice(Description description, Field<Enum> field, std::vector<std::pair<std::string, Enum>> names) {
  std::vector<std::string> words;
  for (const auto& [name, value] : names)
    words.push_back(name);
  std::string accepts = "one of";
  for (const std::string& word : words)
    accepts += (word == words.front() ? " " : ", ") + word;
  ConfigKey key{description.path, description.help, description.flags, accepts, false, {}, {}};
  key.set = [field, names, words](Config& config, const ConfigValue& value) -> std::string {
    for (const auto& [name, meaning] : names) {
      if (value.kind == ConfigValue::Kind::kScalar && value.text == name) {
        field(config) = meaning;
        return {};
      }
    }
    return choice_complaint(words, value);
  };
  key.get = [field, names](Config& config) {
    for (const auto& [name, meaning] : names) {
      if (meaning == field(config)) return name;
    }
    return std::string();
  };
  return key;
}

// Reads a mapping, or a flag's text in place of one, member by member. Returns the first complaint of `set`, or "".
template <class T>
std::string read_members(const ConfigValue& item, T& entry,
                         std::string (*set)(T& entry, const std::string& name, const ConfigValue& value)) {
  const bool is_flag = item.kind == ConfigValue::Kind::kScalar && item.line == 0;
  const ConfigValue map = is_flag ? mapping_of_flag(item.text) : item;
  if (map.kind != ConfigValue::Kind::kMap) return "is not a mapping";
  for (const ConfigMember& member : map.members) {
    std::string complaint = set(entry, member.name, member.value);
    if (!complaint.empty()) return complaint;
  }
  return {};
}

// Reading and showing a list of mappings; complaints are empty if there is none.
template <class T>
struct EntryType {
  std::string accepts;
  std::string (*read)(const ConfigValue& item, T& entry);  // a mapping, or a flag's text
  std::string (*clash)(const T& entry, const T& earlier);  // returns why both cannot be used
  std::string (*show)(const T& entry);
  std::size_t most = std::numeric_limits<std::size_t>::max();
};

// Place of an entry in complaints: " (line 7)", "" for a flag.
std::string place_of(const ConfigValue& item);

template <class T>
ConfigKey entries(Description description, Field<std::vector<T>> field, EntryType<T> type) {
  ConfigKey key{description.path, description.help, description.flags, type.accepts, true, {}, {}};
  key.set = [field, type](Config& config, const ConfigValue& value) -> std::string {
    if (value.kind != ConfigValue::Kind::kList) return "must be " + type.accepts;
    std::vector<T> found;
    for (const ConfigValue& item : value.items) {
      T each;
      const std::string complaint = type.read(item, each);
      if (!complaint.empty()) return "has an entry" + place_of(item) + " that " + complaint;
      for (const T& earlier : found) {
        const std::string clash = type.clash(each, earlier);
        if (!clash.empty()) return clash + place_of(item);
      }
      found.push_back(std::move(each));
    }
    if (found.size() > type.most) {
      return "has " + std::to_string(found.size()) + " entries, at most " + std::to_string(type.most) + " are allowed";
    }
    field(config) = std::move(found);
    return {};
  };
  key.get = [field, show = type.show](Config& config) {
    std::string out;
    for (const T& each : field(config))
      out += (out.empty() ? "" : ", ") + show(each);
    return "[" + out + "]";
  };
  return key;
}

ConfigKey text_choice(Description description, Field<std::string> field, const std::vector<std::string>& names);
// A text that `known` accepts or refuses; `names` are suggested.
ConfigKey known_text(Description description, Field<std::string> field, std::string accepts,
                     const std::vector<std::string_view>& names, bool (*known)(std::string_view));
ConfigKey boolean(Description description, Field<bool> field);
ConfigKey number(Description description, Field<double> field, double min, double max);
ConfigKey size(Description description, Field<std::int64_t> field, Range range);
ConfigKey duration(Description description, Field<std::chrono::milliseconds> field);
ConfigKey seconds(Description description, Field<double> field);  // a duration kept in seconds
ConfigKey milliseconds(Description description, Field<double> field);
ConfigKey milliseconds_or_auto(Description description, Field<double> field, double automatic);  // ... in milliseconds
ConfigKey text(Description description, Field<std::string> field);
ConfigKey path(Description description, Field<std::filesystem::path> field);
ConfigKey texts(Description description, Field<std::vector<std::string>> field);  // a text or a list
ConfigKey api_keys(Description description, Field<std::vector<ApiKeyOptions>> field);
ConfigKey model_entries(Description description, Field<std::vector<ModelEntry>> field);
ConfigKey weights(Description description, Field<std::map<std::string, double>> field);

}  // namespace quire::config_types
