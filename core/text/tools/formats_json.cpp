// Formats whose calls are JSON objects: one for each pair of markers, or a list.
#include "core/text/tools/format_table.h"

namespace quire {
namespace {

ToolFormat json_format(std::string_view name, std::vector<std::string_view> starts,
                       std::vector<std::string_view> ends) {
  ToolFormat format;
  format.name = name;
  format.syntax = CallSyntax::kJson;
  format.starts = std::move(starts);
  format.ends = std::move(ends);
  format.needs_arguments = true;
  return format;
}

FormatEntry hermes() {
  ToolFormat format = json_format("hermes", {"<tool_call>"}, {"</tool_call>"});
  format.calls_in_open_reasoning = true;
  return {format, {"qwen", "qwen25", "qwen3", "qwen2", "nous", "exaone", "reasoning"}, {{370, "<tool_call>"}}};
}

FormatEntry reka() {
  ToolFormat format = hermes().format;
  format.name = "reka";
  format.trims_content = true;
  return {format, {"rekaedge"}, {{360, "<tool_call>", "<sep>"}}};
}

FormatEntry llama_json() {
  ToolFormat format = json_format("llama3_json", {"<|python_tag|>"}, {"<|eom_id|>"});
  format.arguments_key = "parameters";
  format.bare_at_begin = true;
  format.bare_anywhere = true;
  format.drops_content_with_calls = true;
  return {format,
          {"llama", "llama3", "llama31", "llama32", "llama4json", "llama3x"},
          {{400, "<|python_tag|>"}, {410, "\"parameters\": ", "<|start_header_id|>"}}};
}

FormatEntry granite4() {
  ToolFormat format = json_format("granite4", {"<tool_call>"}, {"</tool_call>"});
  format.needs_end = true;
  return {format, {}};
}

FormatEntry granite_20b() {
  ToolFormat format = json_format("granite-20b-fc", {"<function_call>"}, {});
  format.single_objects = true;
  return {format, {"granite20bfc", "granite20b"}};
}

FormatEntry ernie() {
  ToolFormat format = json_format("ernie45", {"<tool_call>"}, {"</tool_call>"});
  format.needs_end = true;
  format.needs_arguments = false;
  format.trims_content = true;
  return {format, {"ernie"}};
}

FormatEntry longcat() {
  ToolFormat format = json_format("longcat", {"<longcat_tool_call>"}, {"</longcat_tool_call>"});
  format.think_begin = "<longcat_think>";
  format.think_end = "</longcat_think>";
  return {format, {}, {{130, "<longcat_tool_call>"}}};
}

FormatEntry internlm() {
  ToolFormat format = json_format("internlm", {"<|action_start|><|plugin|>"}, {"<|action_end|>"});
  format.needs_arguments = false;
  format.arguments_key = "parameters";
  return {format, {"internlm2"}, {{230, "<|action_start|>"}}};
}

FormatEntry gigachat() {
  ToolFormat format = json_format("gigachat3", {"<|message_sep|>\n\nfunction call<|role_sep|>\n", "<|function_call|>"},
                                  {"<|message_sep|>"});
  format.may_lack_end = true;
  return {format, {"gigachat"}, {{240, "<|function_call|>"}, {240, "function call", "<|message_sep|>"}}};
}

FormatEntry generic() {
  ToolFormat format = json_format("json", {"<tool_call>", "```json"}, {"</tool_call>", "```"});
  format.bare_at_begin = true;
  return {format, {"generic", "genericjson"}};
}

}  // namespace

std::vector<FormatEntry> json_formats() {
  return {hermes(), reka(),    llama_json(), granite4(), granite_20b(),
          ernie(),  longcat(), internlm(),   gigachat(), generic()};
}

namespace {

FormatEntry listed(std::string_view name, std::vector<std::string_view> starts, std::vector<std::string_view> ends) {
  ToolFormat format = json_format(name, std::move(starts), std::move(ends));
  format.in_list = true;
  return {format, {}};
}

FormatEntry granite() {
  FormatEntry entry = listed("granite", {"<|tool_call|>", "<tool_call>"}, {});
  entry.signs = {{380, "<|tool_call|>"}};
  entry.format.begins_output = true;
  entry.format.ends_output = true;
  entry.format.lists_only = true;
  entry.aliases = {"granite3", "granite30", "granite31", "granite32", "granite33"};
  return entry;
}

FormatEntry hunyuan() {
  FormatEntry entry = listed("hunyuan_a13b", {"<tool_calls>"}, {"</tool_calls>"});
  entry.format.skips_reasoning = true;
  entry.format.answer_tags = {"<answer>", "</answer>"};
  entry.format.lists_only = true;
  entry.format.needs_end = true;
  entry.aliases = {"hunyuan"};
  return entry;
}

FormatEntry apertus() {
  FormatEntry entry = listed("apertus", {"<|tools_prefix|>"}, {"<|tools_suffix|>"});
  entry.signs = {{210, "<|tools_prefix|>"}};
  entry.format.name_is_key = true;
  entry.format.trims_content = true;
  entry.format.mends_cut_off = true;
  entry.format.keeps_text_after_calls = true;
  entry.format.think_begin = "<|inner_prefix|>";
  entry.format.think_end = "<|inner_suffix|>";
  return entry;
}

FormatEntry phi4_mini() {
  FormatEntry entry = listed("phi4_mini_json", {"functools"}, {});
  entry.signs = {{340, "functools["}};
  entry.format.list_mark = "functools[";
  entry.format.empty_list_is_call = true;
  entry.format.drops_content_with_calls = true;
  entry.aliases = {"phi4mini"};
  return entry;
}

FormatEntry command_r7b() {
  FormatEntry entry = listed("command_r7b", {"<|START_ACTION|>"}, {"<|END_ACTION|>"});
  ToolFormat& format = entry.format;
  entry.signs = {{180, "<|START_ACTION|>"}};
  format.name_key = "tool_name";
  format.arguments_key = "parameters";
  format.id_key = "tool_call_id";
  format.think_begin = "<|START_THINKING|>";
  format.think_end = "<|END_THINKING|>";
  format.dropped = {"<|START_RESPONSE|>", "<|END_RESPONSE|>",      "<|START_TEXT|>",
                    "<|END_TEXT|>",       "<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"};
  entry.aliases = {"cohere2", "cohere2moe", "commandr7b", "commanda"};
  return entry;
}

FormatEntry command_r_plus() {
  FormatEntry entry = listed("command_r", {"Action: ```json", "Action:```json", "Action:\n```json"}, {"```"});
  ToolFormat& format = entry.format;
  entry.signs = {{190, "Action:", "```json"}};
  format.answer_names = {"directly_answer", "directly-answer"};
  format.name_key = "tool_name";
  format.arguments_key = "parameters";
  format.dropped = {"<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>"};
  entry.aliases = {"commandrplus"};
  return entry;
}

FormatEntry xlam() {
  FormatEntry entry = listed("xlam", {"<tool_call>", "[TOOL_CALLS]", "<tool_calls>", "```json", "```", "</think>["},
                             {"</tool_call>", "</tool_calls>", "```"});
  entry.format.bare_at_begin = true;
  entry.format.trims_content = true;
  return entry;
}

}  // namespace

std::vector<FormatEntry> listed_json_formats() {
  FormatEntry jamba = listed("jamba", {"<tool_calls>"}, {"</tool_calls>"});
  jamba.format.lists_only = true;
  jamba.format.needs_end = true;
  FormatEntry minimax = jamba;
  minimax.format.name = "minimax";
  minimax.aliases = {"minimaxm1"};
  FormatEntry apriel = listed("apriel", {"<tool_calls>"}, {"</tool_calls>"});
  apriel.signs = {{350, "<tool_calls>"}};
  FormatEntry apriel_thinker = apriel;
  apriel_thinker.format.name = "apriel_thinker";
  apriel_thinker.signs = {{200, "[BEGIN FINAL RESPONSE]"}};
  apriel_thinker.keeps_think_tags = true;
  apriel_thinker.format.think_begin = "<|begin_assistant|>";
  apriel_thinker.format.think_end = "[BEGIN FINAL RESPONSE]";
  apriel_thinker.format.dropped = {"[END FINAL RESPONSE]", "<|end|>"};
  FormatEntry nemotron = listed("nemotron_v2", {"<TOOLCALL>"}, {"</TOOLCALL>"});
  nemotron.signs = {{220, "<TOOLCALL>"}};
  FormatEntry firefunction = listed("firefunction", {" functools", "functools"}, {});
  firefunction.signs = {{330, " functools["}};
  firefunction.format.list_mark = "functools[";
  firefunction.format.tools_variable = "functions";
  return {jamba,     minimax,   apriel,      apriel_thinker, nemotron,         firefunction, granite(),
          hunyuan(), apertus(), phi4_mini(), command_r7b(),  command_r_plus(), xlam()};
}

}  // namespace quire
