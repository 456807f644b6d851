// Formats with tags around names and parameters, pythonic ones, Gemma's, and gpt-oss.
#include "core/text/tools/format_table.h"

namespace quire {
namespace {

ToolFormat tagged_format(std::string_view name, std::string_view start, std::string_view end) {
  ToolFormat format;
  format.name = name;
  format.syntax = CallSyntax::kTagged;
  format.starts = {start};
  format.ends = {end};
  format.name_begin = "<function=";
  format.name_end = ">";
  format.call_end = "</function>";
  format.parameter_begin = "<parameter=";
  format.key_end = ">";
  format.parameter_end = "</parameter>";
  format.mends_cut_off = true;
  format.calls_in_open_reasoning = true;
  return format;
}

FormatEntry qwen3_coder() {
  ToolFormat format = tagged_format("qwen3_coder", "<tool_call>", "</tool_call>");
  format.starts.push_back("<function=");
  format.needs_name_end = true;
  format.start_is_enough = true;
  return {format,
          {"qwen3xml", "mimo", "qwen35", "nemotronv3", "nemotron3nano", "qwen3coderxml"},
          {{160, "<function=", "<parameter="}}};
}

FormatEntry step3p5() {
  ToolFormat format = qwen3_coder().format;
  format.name = "step3p5";
  return {format, {"stepfun", "step35"}};
}

FormatEntry seed_oss() {
  ToolFormat format = tagged_format("seed_oss", "<seed:tool_call>", "</seed:tool_call>");
  format.think_begin = "<seed:think>";
  format.think_end = "</seed:think>";
  format.trims_content = true;
  return {format, {"seed"}, {{100, "<seed:tool_call>"}}};
}

ToolFormat invoke_format(std::string_view name, std::string_view start, std::string_view end) {
  ToolFormat format = tagged_format(name, start, end);
  format.name_begin = "<invoke name=\"";
  format.name_end = "\">";
  format.call_end = "</invoke>";
  format.parameter_begin = "<parameter name=\"";
  format.key_end = "\">";
  format.mends_cut_off = false;
  return format;
}

FormatEntry minimax_m2() {
  ToolFormat format = invoke_format("minimax_m2", "<minimax:tool_call>", "</minimax:tool_call>");
  format.starts_in_reasoning = true;
  format.trims_content = true;
  return {format, {"minimaxm25"}, {{120, "<minimax:tool_call>"}}};
}

// MiniMax's later models mark every tag and write members and items as tags.
FormatEntry minimax_m3() {
  ToolFormat format;
  format.name = "minimax_m3";
  format.syntax = CallSyntax::kNestedTags;
  format.tag_mark = "]<]minimax[>[";
  format.starts = {"]<]minimax[>[<tool_call>"};
  format.ends = {"]<]minimax[>[</tool_call>"};
  format.name_begin = "]<]minimax[>[<invoke name=\"";
  format.name_end = "\">";
  format.call_end = "]<]minimax[>[</invoke>";
  format.think_begin = "<mm:think>";
  format.think_end = "</mm:think>";
  format.trims_content = true;
  format.calls_in_open_reasoning = true;
  return {format, {"minimaxm3"}, {{110, "]<]minimax[>[", "invoke name="}}};
}

FormatEntry dsml(FormatSign sign, std::string_view name, std::string_view start, std::string_view end) {
  ToolFormat format = tagged_format(name, start, end);
  format.name_begin = "<｜DSML｜invoke name=\"";
  format.name_end = "\">";
  format.call_end = "</｜DSML｜invoke>";
  format.parameter_begin = "<｜DSML｜parameter name=\"";
  format.key_end = ">";
  format.parameter_end = "</｜DSML｜parameter>";
  format.wrapper_keys = {"arguments", "input"};
  format.value_attribute = "string=\"";
  format.text_word = "true";
  format.mends_cut_off = false;
  format.trims_values = false;
  return {format, {}, {sign}};
}

ToolFormat key_value_format(std::string_view name, std::string_view name_end) {
  ToolFormat format = tagged_format(name, "<tool_call>", "");
  format.ends.clear();
  format.name_begin = "<tool_call>";
  format.name_end = name_end;
  format.call_end = "</tool_call>";
  format.parameter_begin = "<arg_key>";
  format.key_end = "</arg_key>";
  format.value_begin = "<arg_value>";
  format.mends_cut_off = false;
  format.parameter_end = "</arg_value>";
  format.trims_content = true;
  format.trims_values = false;
  return format;
}

FormatEntry glm() {
  ToolFormat format = key_value_format("glm45", "");
  return {format, {"glm47", "glm46", "glm", "glm4", "glm5", "ling3", "poolsidev1"}, {{150, "<arg_key>"}}};
}

FormatEntry hy_v3() {
  ToolFormat format = key_value_format("hy_v3", "<tool_sep>");
  format.starts = {"<tool_calls>"};
  format.ends = {"</tool_calls>"};
  return {format, {"hyv3"}, {{140, "<tool_sep>", "<arg_key>"}}};
}

FormatEntry kimi_k3() {
  ToolFormat format = tagged_format("kimi_k3", "<|open|>tools<|sep|>", "<|close|>tools<|sep|>");
  format.name_begin = "<|open|>call tool=\"";
  format.name_attribute = " index=\"";
  format.value_attribute = "type=\"";
  format.text_word = "string";
  format.name_end = "<|sep|>";
  format.call_end = "<|close|>call<|sep|>";
  format.parameter_begin = "<|open|>argument key=\"";
  format.key_end = "<|sep|>";
  format.parameter_end = "<|close|>argument<|sep|>";
  format.trims_values = false;
  format.think_begin = "<|open|>think<|sep|>";
  format.think_end = "<|close|>think<|sep|>";
  format.dropped = {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"};
  return {format, {}, {{20, "<|open|>", "<|sep|>"}}, true};
}

FormatEntry minicpm5() {
  ToolFormat format = tagged_format("minicpm5", "<function name=\"", "");
  format.ends.clear();
  format.name_begin = "<function name=\"";
  format.name_end = "\">";
  format.parameter_begin = "<param name=\"";
  format.key_end = "\">";
  format.parameter_end = "</param>";
  format.trims_content = true;
  format.drops_content_with_calls = true;
  format.mends_cut_off = false;
  format.checks_schema = true;
  format.xml_values = true;
  format.wrapper_keys = {"properties", "arguments"};
  return {format, {"minicpm"}, {{170, "<function name=", "<param name="}}};
}

}  // namespace

std::vector<FormatEntry> tagged_formats() {
  return {qwen3_coder(),
          step3p5(),
          seed_oss(),
          minimax_m2(),
          minimax_m3(),
          dsml({60, "｜DSML｜"}, "deepseek_v32", "<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
          dsml({50, "｜DSML｜", "tool_calls>"}, "deepseek_v4", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
          glm(),
          hy_v3(),
          kimi_k3(),
          minicpm5()};
}

namespace {

ToolFormat pythonic_format(std::string_view name, std::vector<std::string_view> starts,
                           std::vector<std::string_view> ends) {
  ToolFormat format;
  format.name = name;
  format.syntax = CallSyntax::kPythonic;
  format.starts = std::move(starts);
  format.ends = std::move(ends);
  return format;
}

ToolFormat braced_format(std::string_view name, std::string_view start, std::string_view end, std::string_view quote) {
  ToolFormat format;
  format.name = name;
  format.syntax = CallSyntax::kBraced;
  format.starts = {start};
  format.ends = {end};
  format.name_begin = "call:";
  format.string_quote = quote;
  format.trims_content = true;
  format.mends_cut_off = true;
  return format;
}

}  // namespace

std::vector<FormatEntry> pythonic_formats() {
  ToolFormat bare = pythonic_format("pythonic", {}, {});
  bare.bare_at_begin = true;
  bare.begins_output = true;
  bare.ends_output = true;
  ToolFormat llama4 = pythonic_format("llama4_pythonic", {"<|python_start|>"}, {"<|python_end|>"});
  llama4.bare_at_begin = true;
  llama4.begins_output = true;
  llama4.ends_output = true;
  ToolFormat olmo3 = pythonic_format("olmo3", {"<function_calls>"}, {"</function_calls>"});
  ToolFormat lfm2 = pythonic_format("lfm2", {"<|tool_call_start|>"}, {"<|tool_call_end|>"});
  lfm2.keeps_text_after_calls = true;
  lfm2.trims_content = true;
  ToolFormat lfm25 = pythonic_format("lfm2.5", {"<|tool_call_start|>"}, {"<|tool_call_end|>"});
  lfm25.bare_anywhere = true;
  return {{bare, {"llama32pythonic"}},
          {llama4, {"llama4"}, {{390, "<|python_start|>"}}},
          {olmo3, {"olmo"}, {{320, "<function_calls>"}}},
          {lfm2, {"lfm"}, {{290, "<|tool_call_start|>"}, {290, "<|tool_list_start|>"}}},
          {lfm25, {}, {{310, "List of tools: [", "<|im_start|>"}}}};
}

std::vector<FormatEntry> other_formats() {
  ToolFormat gemma4 = braced_format("gemma4", "<|tool_call>", "<tool_call|>", "<|\"|>");
  gemma4.think_begin = "<|channel>thought";
  gemma4.think_end = "<channel|>";
  gemma4.reasoning_anywhere = true;
  gemma4.dropped = {"<channel|>", "<|channel>"};
  ToolFormat harmony;
  harmony.name = "harmony";
  harmony.syntax = CallSyntax::kHarmony;
  harmony.think_begin = "";
  harmony.think_end = "";
  harmony.starts = {"<|channel|>commentary to=functions.", "<|channel|>analysis to=functions.",
                    "<|start|>assistant to=functions."};
  harmony.ends = {"<|call|>"};
  harmony.may_lack_end = true;
  harmony.dropped = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"};
  harmony.answer_begin = "<|channel|>final<|message|>";
  ToolFormat functiongemma = braced_format("functiongemma", "<start_function_call>", "<end_function_call>", "<escape>");
  ToolFormat none;
  none.name = "none";
  // Step3's calls are left in the content, as vLLM leaves them.
  return {{gemma4, {"gemma"}, {{30, "<|tool_call>", "<|channel>"}}, true},
          {functiongemma, {}, {{40, "<start_function_call>"}}},
          {harmony, {"openai", "gptoss", "gptoss120b"}, {{10, "<|channel|>", "<|message|>"}}, true},
          {none, {"step3", "content", "text"}}};
}

}  // namespace quire
