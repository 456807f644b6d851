// The table of known tool formats. Immutable; any thread. Not for use outside core/text/tools.
#pragma once

#include <string_view>
#include <vector>

#include "core/text/tools/tool_format.h"

namespace quire {

// Texts that a chat template of the format holds. Signs are looked for by their rank: a lower one tells more.
struct FormatSign {
  int rank = 0;
  std::string_view first;
  std::string_view second = {};
};

struct FormatEntry {
  ToolFormat format;
  std::vector<std::string_view> aliases;
  std::vector<FormatSign> signs = {};
  bool keeps_think_tags = false;  // a template's other tags are not the reasoning's
};

const std::vector<FormatEntry>& tool_format_table();

std::vector<FormatEntry> json_formats();
std::vector<FormatEntry> listed_json_formats();
std::vector<FormatEntry> named_json_formats();
std::vector<FormatEntry> pythonic_formats();
std::vector<FormatEntry> tagged_formats();
std::vector<FormatEntry> other_formats();

}  // namespace quire
