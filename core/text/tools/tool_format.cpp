#include "core/text/tools/tool_format.h"

#include <algorithm>
#include <cctype>

#include "core/text/tools/format_table.h"

namespace quire {
namespace {

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return plain;
}

std::vector<FormatEntry> make_table() {
  std::vector<FormatEntry> table;
  for (auto* make :
       {json_formats, listed_json_formats, named_json_formats, tagged_formats, pythonic_formats, other_formats}) {
    for (auto& entry : make())
      table.push_back(std::move(entry));
  }
  return table;
}

}  // namespace

const std::vector<FormatEntry>& tool_format_table() {
  static const std::vector<FormatEntry> kEntries = make_table();
  return kEntries;
}

const ToolFormat* find_tool_format(std::string_view name) {
  const std::string wanted = plain_name(name);
  for (const auto& entry : tool_format_table()) {
    if (plain_name(entry.format.name) == wanted) return &entry.format;
  }
  for (const auto& entry : tool_format_table()) {
    const bool alias = std::any_of(entry.aliases.begin(), entry.aliases.end(),
                                   [&wanted](std::string_view a) { return plain_name(a) == wanted; });
    if (alias) return &entry.format;
  }
  return nullptr;
}

std::vector<std::string_view> tool_format_names() {
  std::vector<std::string_view> names;
  for (const auto& entry : tool_format_table())
    names.push_back(entry.format.name);
  return names;
}

}  // namespace quire
