// The table of known tool formats. Immutable; any thread. Not for use outside core/text/tools.
#pragma once

#include <string_view>
#include <vector>

#include "core/text/tools/tool_format.h"

namespace quire {

struct FormatEntry {
  ToolFormat format;
  std::vector<std::string_view> aliases;
};

std::vector<FormatEntry> json_formats();
std::vector<FormatEntry> listed_json_formats();
std::vector<FormatEntry> named_json_formats();
std::vector<FormatEntry> pythonic_formats();
std::vector<FormatEntry> tagged_formats();
std::vector<FormatEntry> other_formats();

}  // namespace quire
