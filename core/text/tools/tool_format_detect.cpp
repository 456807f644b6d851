#include <limits>
#include <string>

#include "core/text/tools/format_table.h"

namespace quire {
namespace {

bool has(std::string_view source, std::string_view text) {
  return source.find(text) != std::string_view::npos;
}

// Tags around the reasoning, where a template writes others than its format usually has.
struct ThinkTags {
  std::string_view begin;
  std::string_view end;
};
constexpr ThinkTags kThinkTags[] = {
    {"<seed:think>", "</seed:think>"},
    {"[THINK]", "[/THINK]"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|inner_prefix|>", "<|inner_suffix|>"},
    {"<longcat_think>", "</longcat_think>"},
    {"<reasoning>", "</reasoning>"},
    {"<mm:think>", "</mm:think>"},
    {"Here is my thought process:", "Here is my response:"},
};

// Tags around the answer, where a template's instructions ask for them.
constexpr ThinkTags kAnswerTags[] = {{"<response>", "</response>"}, {"<answer>", "</answer>"}};

}  // namespace

ToolFormat detect_tool_format(std::string_view source) {
  ToolFormat format = *find_tool_format("json");
  bool keeps_think_tags = false;
  int rank = std::numeric_limits<int>::max();
  for (const FormatEntry& entry : tool_format_table()) {
    for (const FormatSign& sign : entry.signs) {
      if (sign.rank >= rank || !has(source, sign.first) || !has(source, sign.second)) continue;
      format = entry.format;
      keeps_think_tags = entry.keeps_think_tags;
      rank = sign.rank;
    }
  }
  if (keeps_think_tags) return format;
  for (const auto& tags : kThinkTags) {
    if (!has(source, tags.begin) && !has(source, tags.end)) continue;
    format.think_begin = tags.begin;
    format.think_end = tags.end;
  }
  for (const auto& tags : kAnswerTags) {
    if (has(source, std::string(tags.begin) + std::string(tags.end))) format.answer_tags = {tags.begin, tags.end};
  }
  return format;
}

}  // namespace quire
