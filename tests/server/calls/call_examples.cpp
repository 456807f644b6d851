#include "tests/server/calls/call_examples.h"

namespace quire::test {

const char* const kAddSchema =
    R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"anyOf":[{"$ref":"#/$defs/S"},
    {"type":"null"}]},"c":{"$ref":"#/$defs/C"}},"required":["a"],"additionalProperties":false,
    "$defs":{"S":{"type":"string"},"C":{"type":"object","properties":{"d":{"type":"array","items":{"type":"boolean"}}},
    "required":["d"],"additionalProperties":false}}})";

namespace {

const std::string kJson = R"({"a": %, "b": "x < y", "c": {"d": [true]}})";
const std::string kMark = "]<]minimax[>[";

// Formats whose arguments are JSON.
std::vector<CallExample> json_examples() {
  const std::string object = R"({"name": "add", "arguments": )" + kJson + "}";
  const std::string parameters = R"({"name": "add", "parameters": )" + kJson + "}";
  const std::string named = R"({"tool_name": "add", "parameters": )" + kJson + "}";
  const std::string deepseek = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>";
  return {
      {"hermes", "<tool_call>\n" + object + "\n</tool_call>"},
      {"hermes", "<tool_call>" + object + "</tool_call>"},
      {"reka", "<tool_call>\n" + object + "\n</tool_call>"},
      {"granite4", "<tool_call>\n" + object + "\n</tool_call>"},
      {"ernie45", "<tool_call>\n" + object + "\n</tool_call>"},
      {"granite-20b-fc", "<function_call> " + object},
      {"longcat", "<longcat_tool_call>\n" + object + "\n</longcat_tool_call>"},
      {"internlm", "<|action_start|><|plugin|>" + parameters + "<|action_end|>"},
      {"gigachat3", "<|function_call|>" + object},
      {"llama3_json", parameters},
      {"json", object},
      {"jamba", "<tool_calls>[\n\t\t" + object + "\n]</tool_calls>"},
      {"minimax", "<tool_calls>[" + object + "]</tool_calls>"},
      {"apriel", "<tool_calls>[" + object + "]</tool_calls>"},
      {"apriel_thinker", "<tool_calls>[" + object + "]</tool_calls>"},
      {"hunyuan_a13b", "<tool_calls>[" + object + "]</tool_calls>"},
      {"nemotron_v2", "<TOOLCALL>[" + object + "]</TOOLCALL>"},
      {"granite", "<|tool_call|>[" + object + "]"},
      {"apertus", "<|tools_prefix|>[{\"add\": " + kJson + "}]<|tools_suffix|>"},
      {"phi4_mini_json", "functools[" + object + "]"},
      {"firefunction", " functools[" + object + "]"},
      {"xlam", "[" + object + "]"},
      {"command_r7b", "<|START_ACTION|>[{\"tool_call_id\": \"0\", " + named.substr(1) + "]<|END_ACTION|>"},
      {"command_r", "Action: ```json\n[\n                    " + named + "\n]```"},
      {"deepseek_v3",
       deepseek + "function<｜tool▁sep｜>add\n```json\n" + kJson + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {"deepseek_v31", deepseek + "add<｜tool▁sep｜>" + kJson + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {"kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>" + kJson +
                      "<|tool_call_end|><|tool_calls_section_end|>"},
      {"mistral", "[TOOL_CALLS]add[ARGS]" + kJson},
      {"mistral_list", "[TOOL_CALLS][" + object + "]"},
      {"functionary_v3.1", "<function=add>" + kJson + "</function>"},
      {"harmony", "<|channel|>commentary to=functions.add <|constrain|>json<|message|>" + kJson + "<|call|>"},
      {"harmony", "<|start|>assistant to=functions.add<|channel|>commentary json<|message|>" + kJson},
  };
}

// Formats with arguments in tags, braces or Python's literals.
std::vector<CallExample> tagged_examples() {
  const std::string python = "add(b='x < y', a=%, c={'d': [True,]})";
  const std::string function =
      "<function=add>\n<parameter=b>\nx < y\n</parameter>\n<parameter=a>\n%\n</parameter>\n"
      "<parameter=c>\n{\"d\": [true]}\n</parameter>\n</function>\n";
  const std::string invoke =
      "<invoke name=\"add\">\n<parameter name=\"a\">%</parameter>\n<parameter name=\"b\">x < y</parameter>\n"
      "<parameter name=\"c\">{\"d\":[true]}</parameter>\n</invoke>\n";
  const std::string dsml =
      "<｜DSML｜invoke name=\"add\">\n<｜DSML｜parameter name=\"a\" string=\"false\">%</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"b\" string=\"true\">x < y</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"c\" string=\"false\">{\"d\": [true]}</｜DSML｜parameter>\n</｜DSML｜invoke>\n";
  const std::string glm =
      "add\n<arg_key>a</arg_key>\n<arg_value>%</arg_value>\n<arg_key>b</arg_key>\n<arg_value>x < y</arg_value>\n"
      "<arg_key>c</arg_key>\n<arg_value>{\"d\": [true]}</arg_value>\n</tool_call>";
  return {
      {"qwen3_coder", "<tool_call>\n" + function + "</tool_call>"},
      {"step3p5", "<tool_call>\n" + function + "</tool_call>"},
      {"seed_oss", "<seed:tool_call>\n" + function + "</seed:tool_call>"},
      {"minimax_m2", "<minimax:tool_call>\n" + invoke + "</minimax:tool_call>"},
      {"minimax_m3", kMark + "<tool_call>\n" + kMark + "<invoke name=\"add\">" + kMark + "<a>%" + kMark + "</a>" +
                         kMark + "<b>x < y" + kMark + "</b>" + kMark + "<c>" + kMark + "<d>" + kMark + "<item>true" +
                         kMark + "</item>" + kMark + "</d>" + kMark + "</c>" + kMark + "</invoke>\n" + kMark +
                         "</tool_call>"},
      {"deepseek_v32", "<｜DSML｜function_calls>\n" + dsml + "</｜DSML｜function_calls>"},
      {"deepseek_v4", "<｜DSML｜tool_calls>\n" + dsml + "</｜DSML｜tool_calls>"},
      {"glm45", "<tool_call>" + glm},
      {"hy_v3", "<tool_calls>\n<tool_call>add<tool_sep>" + glm.substr(4) + "\n</tool_calls>"},
      {"kimi_k3",
       "<|open|>tools<|sep|><|open|>call tool=\"add\" index=\"1\"<|sep|><|open|>argument key=\"a\" "
       "type=\"number\"<|sep|>%"
       "<|close|>argument<|sep|><|open|>argument key=\"b\" type=\"string\"<|sep|>x < y<|close|>argument<|sep|><|open|>"
       "argument key=\"c\" "
       "type=\"object\"<|sep|>{\"d\":[true]}<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools"
       "<|sep|>"},
      {"minicpm5",
       "<function name=\"add\"><param name=\"a\">%</param><param name=\"b\">x &lt; y</param><param name=\"c\">{\"d\": "
       "[true]}</param></function>"},
      {"pythonic", "[" + python + "]"},
      {"llama4_pythonic", "<|python_start|>[" + python + "]<|python_end|>"},
      {"olmo3", "<function_calls>\n" + python + "\n</function_calls>"},
      {"lfm2", "<|tool_call_start|>[" + python + "]<|tool_call_end|>"},
      {"lfm2.5", "[" + python + "]"},
      {"gemma4", "<|tool_call>call:add{a:%,b:<|\"|>x < y<|\"|>,c:{d:[true]}}<tool_call|>"},
      {"functiongemma", "<start_function_call>call:add{a:%,b:<escape>x < y<escape>,c:{d:[true]}}<end_function_call>"},
  };
}

}  // namespace

std::vector<CallExample> call_examples() {
  std::vector<CallExample> all = json_examples();
  const std::vector<CallExample> tagged = tagged_examples();
  all.insert(all.end(), tagged.begin(), tagged.end());
  return all;
}

}  // namespace quire::test
