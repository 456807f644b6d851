// ConfigValue: a node of a configuration before its meaning is known, with its line number. Value type.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct ConfigMember;

struct ConfigValue {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  std::string text;     // a scalar's text
  bool quoted = false;  // written with quotes: text, never a number
  int line = 0;         // from 1; 0 for a value from a flag
  std::vector<ConfigValue> items;
  std::vector<ConfigMember> members;  // in the file's order, names distinct
};

struct ConfigMember {
  std::string name;
  int line = 0;  // line of the name
  ConfigValue value;
};

// Reads one YAML document of at most 1 MiB: a mapping, or nothing (an empty map). Throws StartupError "name:line: what"
// for broken YAML, a name that occurs twice, anchors, aliases, tags, more than one document, or absurd size or depth.
ConfigValue read_yaml(std::string_view text, const std::string& name);

// A client's or file's name, fit for a message: without control characters, which would break the line, and shortened.
std::string one_line(std::string_view name);

}  // namespace quire
