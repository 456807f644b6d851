#include "core/text/tools/call_marks.h"

#include <algorithm>

#include "core/text/tools/tool_format.h"

namespace quire {
namespace {

constexpr std::size_t kShortestMark = 3;

bool has_mark(const ToolFormat& format, std::string_view token) {
  const auto holds = [token](std::string_view mark) { return mark.find(token) != std::string_view::npos; };
  for (const auto* marks : {&format.starts, &format.ends, &format.dropped, &format.answer_tags}) {
    if (std::any_of(marks->begin(), marks->end(), holds)) return true;
  }
  for (const std::string_view mark :
       {format.name_begin, format.name_end, format.call_end, format.parameter_begin, format.key_end,
        format.parameter_end, format.value_begin, format.string_quote, format.tag_mark, format.call_id,
        format.think_begin, format.think_end, format.answer_begin}) {
    if (holds(mark)) return true;
  }
  return false;
}

}  // namespace

bool is_call_mark(std::string_view token) {
  if (token.size() < kShortestMark) return false;
  const auto names = tool_format_names();
  return std::any_of(names.begin(), names.end(),
                     [token](std::string_view name) { return has_mark(*find_tool_format(name), token); });
}

}  // namespace quire
