#include <string>

#include "core/text/tools/tool_format.h"

namespace quire {
namespace {

bool has(std::string_view source, std::string_view text) {
  return source.find(text) != std::string_view::npos;
}

// What only the templates of one format contain, the most telling first.
struct Sign {
  std::string_view all_of[2];
  std::string_view format;
};
constexpr Sign kSigns[] = {
    {{"<|channel|>", "<|message|>"}, "harmony"},
    {{"<|open|>", "<|sep|>"}, "kimi_k3"},
    {{"<|tool_call>", "<|channel>"}, "gemma4"},
    {{"<start_function_call>", ""}, "functiongemma"},
    {{"｜DSML｜", "tool_calls>"}, "deepseek_v4"},
    {{"｜DSML｜", ""}, "deepseek_v32"},
    {{"<｜tool▁sep｜>", "```json"}, "deepseek_v3"},
    {{"<｜tool▁call▁begin｜>", ""}, "deepseek_v31"},
    {{"<|tool_call_argument_begin|>", ""}, "kimi_k2"},
    {{"<seed:tool_call>", ""}, "seed_oss"},
    {{"]<]minimax[>[", "invoke name="}, "minimax_m3"},
    {{"<minimax:tool_call>", ""}, "minimax_m2"},
    {{"<longcat_tool_call>", ""}, "longcat"},
    {{"<tool_sep>", "<arg_key>"}, "hy_v3"},
    {{"<arg_key>", ""}, "glm45"},
    {{"<function=", "<parameter="}, "qwen3_coder"},
    {{"<function name=", "<param name="}, "minicpm5"},
    {{"<|START_ACTION|>", ""}, "command_r7b"},
    {{"Action:", "```json"}, "command_r"},
    {{"[BEGIN FINAL RESPONSE]", ""}, "apriel_thinker"},
    {{"<|tools_prefix|>", ""}, "apertus"},
    {{"<TOOLCALL>", ""}, "nemotron_v2"},
    {{"<|action_start|>", ""}, "internlm"},
    {{"<|function_call|>", ""}, "gigachat3"},
    {{"function call", "<|message_sep|>"}, "gigachat3"},
    {{"[TOOL_CALLS]", "[ARGS]"}, "mistral"},
    {{"[TOOL_CALLS]", ""}, "mistral_list"},
    {{">>>all", ""}, "functionary_v3.2"},
    {{"<|tool_call_start|>", ""}, "lfm2"},
    {{"<|tool_list_start|>", ""}, "lfm2"},
    {{"List of tools: [", "<|im_start|>"}, "lfm2.5"},
    {{"<function_calls>", ""}, "olmo3"},
    {{" functools[", ""}, "firefunction"},
    {{"functools[", ""}, "phi4_mini_json"},
    {{"<tool_calls>", ""}, "apriel"},
    {{"<function=", ""}, "functionary_v3.1"},
    {{"<tool_call>", ""}, "hermes"},
    {{"<|tool_call|>", ""}, "granite"},
    {{"<|python_start|>", ""}, "llama4_pythonic"},
    {{"<|python_tag|>", ""}, "llama3_json"},
    {{"\"parameters\": ", "<|start_header_id|>"}, "llama3_json"},
};

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
  for (const auto& sign : kSigns) {
    if (has(source, sign.all_of[0]) && has(source, sign.all_of[1])) {
      format = *find_tool_format(sign.format);
      break;
    }
  }
  if (format.name == "hermes" && has(source, "<sep>")) format = *find_tool_format("reka");
  const bool has_own_tags = format.name == "gemma4" || format.name == "apriel_thinker" || format.name == "kimi_k3";
  if (format.syntax == CallSyntax::kHarmony || has_own_tags) return format;
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
