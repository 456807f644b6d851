// Formats that write a call's name as text and its arguments as JSON after it.
#include "core/text/tools/format_table.h"

namespace quire {
namespace {

ToolFormat named_format(std::string_view name, std::string_view begin, std::string_view middle, std::string_view end) {
  ToolFormat format;
  format.name = name;
  format.syntax = CallSyntax::kNamedJson;
  format.name_begin = begin;
  format.name_end = middle;
  format.call_end = end;
  format.verbatim_arguments = true;
  return format;
}

constexpr std::string_view kDeepSeekBegin = "<｜tool▁calls▁begin｜>";
constexpr std::string_view kDeepSeekEnd = "<｜tool▁calls▁end｜>";

ToolFormat deepseek_section(ToolFormat format) {
  format.starts = {kDeepSeekBegin};
  format.ends = {kDeepSeekEnd};
  format.start_is_enough = true;
  return format;
}

FormatEntry deepseek_v3() {
  ToolFormat format = deepseek_section(
      named_format("deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "<｜tool▁call▁end｜>"));
  format.fence = "```";
  return {format, {"deepseekr1", "deepseek"}, {{70, "<｜tool▁sep｜>", "```json"}}};
}

FormatEntry deepseek_v31() {
  ToolFormat format =
      deepseek_section(named_format("deepseek_v31", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"));
  return {format, {}, {{80, "<｜tool▁call▁begin｜>"}}};
}

FormatEntry kimi_k2() {
  ToolFormat format =
      named_format("kimi_k2", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>");
  format.starts = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"};
  format.first_start_only = true;
  format.start_is_enough = true;
  format.ends = {"<|tool_calls_section_end|>"};
  format.name_is_id = true;
  format.calls_end_reasoning = true;
  return {format, {"kimi", "kimik25"}, {{90, "<|tool_call_argument_begin|>"}}};
}

FormatEntry mistral() {
  ToolFormat format = named_format("mistral", "[TOOL_CALLS]", "[ARGS]", "");
  format.starts = {"[TOOL_CALLS]"};
  format.name_may_touch = true;
  format.may_be_list = true;
  format.needs_arguments = true;
  format.skips_to_json = true;
  format.call_id = "[CALL_ID]";
  format.think_begin = "[THINK]";
  format.think_end = "[/THINK]";
  return {format, {"mistralv11", "devstral", "ministral", "magistral"}, {{260, "[TOOL_CALLS]", "[ARGS]"}}};
}

// Before version 11 of its tokenizer Mistral wrote a JSON list; the reader takes both.
FormatEntry mistral_list() {
  ToolFormat format = mistral().format;
  format.name = "mistral_list";
  format.in_list = true;
  return {format, {"mistralprev11", "mistralnemo"}, {{270, "[TOOL_CALLS]"}}};
}

FormatEntry functionary_v32() {
  ToolFormat format = named_format("functionary_v3.2", ">>>", "\n", "");
  format.starts = {">>>"};
  format.prompt_start = ">>>";
  format.dropped = {">>>all\n"};
  format.verbatim_arguments = false;
  return {format, {"functionary", "functionary32", "functionaryv3"}, {{280, ">>>all"}}};
}

FormatEntry functionary_v31() {
  ToolFormat format = named_format("functionary_v3.1", "<function=", ">", "</function>");
  format.starts = {"<function="};
  format.verbatim_arguments = false;
  return {format, {"functionary31", "functionaryv31llama31"}, {{355, "<function="}}};
}

}  // namespace

std::vector<FormatEntry> named_json_formats() {
  return {deepseek_v3(), deepseek_v31(), kimi_k2(), mistral(), mistral_list(), functionary_v32(), functionary_v31()};
}

}  // namespace quire
