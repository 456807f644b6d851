#include "core/base/json/json.h"
#include "core/text/tools/output_parser.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

namespace quire {
namespace {

const std::vector<ToolSpec> kTools = {
    {"get_weather", {{"city", {"string"}, true}, {"days", {"integer"}, false}, {"hours", {"array"}, false}}},
    {"f", {}}};

OutputParser make_parser(std::string_view format, OutputParserOptions options = {}) {
  const ToolFormat* found = find_tool_format(format);
  REQUIRE(found != nullptr);
  return OutputParser(*found, kTools, std::move(options));
}

// Joins the deltas of one push into one.
OutputDelta joined(const std::vector<OutputDelta>& deltas) {
  OutputDelta all;
  for (const OutputDelta& delta : deltas) {
    all.content += delta.content;
    all.reasoning += delta.reasoning;
    all.tool_calls.insert(all.tool_calls.end(), delta.tool_calls.begin(), delta.tool_calls.end());
  }
  return all;
}

ParsedOutput parse(std::string_view format, std::string_view text, OutputParserOptions options = {},
                   std::size_t piece = 1) {
  OutputParser parser = make_parser(format, std::move(options));
  ParsedOutput output;
  for (std::size_t i = 0; i < text.size(); i += piece)
    output.apply(parser.push(text.substr(i, piece)));
  output.apply(parser.finish());
  return output;
}

TEST_CASE("a Hermes call is streamed name first, then its arguments as they are written") {
  OutputParser parser = make_parser("hermes");
  CHECK(joined(parser.push("I look.\n<tool")).content == "I look.\n");
  CHECK(parser.push("_call>\n{\"name\": \"get_wea").empty());
  const OutputDelta named = joined(parser.push("ther\", "));
  REQUIRE(named.tool_calls.size() == 1);
  CHECK(named.tool_calls[0].name == "get_weather");
  CHECK(named.tool_calls[0].arguments.empty());
  const OutputDelta first = joined(parser.push("\"arguments\": {\"city\": \"Par"));
  REQUIRE(first.tool_calls.size() == 1);
  CHECK(first.tool_calls[0].name.empty());
  CHECK(first.tool_calls[0].arguments == "{\"city\": \"Par");
  const OutputDelta rest = joined(parser.push("is\"}}\n</tool_call>"));
  REQUIRE(rest.tool_calls.size() == 1);
  CHECK(rest.tool_calls[0].arguments == "is\"}");
  CHECK(parser.finish().empty());
}

TEST_CASE("string parameters in tags are streamed as they are written") {
  OutputParser parser = make_parser("qwen3_coder");
  ParsedOutput output;
  output.apply(parser.push("<tool_call>\n<function=get_weather>\n<parameter=city>\nNew \"Yo"));
  REQUIRE(output.tool_calls.size() == 1);
  CHECK(output.tool_calls[0].arguments == "{\"city\": \"New \\\"Yo");
  output.apply(parser.push("rk\"\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"));
  output.apply(parser.finish());
  CHECK(output.tool_calls[0].arguments == "{\"city\": \"New \\\"York\\\"\", \"days\": 3}");
}

TEST_CASE("reasoning is split off, and begins at once where the prompt ends inside a think tag") {
  OutputParserOptions options;
  options.prompt_end = "<|im_start|>assistant\n<think>\n";
  OutputParser parser = make_parser("hermes", options);
  CHECK(parser.in_reasoning());
  CHECK(joined(parser.push("Let me see.\n")).reasoning == "Let me see.");
  CHECK(parser.push("</thi").empty());
  CHECK(joined(parser.push("nk>\n\nHello")).content == "Hello");
  CHECK_FALSE(parser.in_reasoning());
  CHECK(parser.finish().empty());

  const ParsedOutput tagged = parse("hermes", "<think>\nHm.\n</think>\n\nHi <think> there");
  CHECK(tagged.reasoning == "Hm.");
  CHECK(tagged.content == "Hi <think> there");
  OutputParserOptions raw;
  raw.parse_reasoning = false;
  CHECK(parse("hermes", "<think>a</think>b", raw).content == "<think>a</think>b");
  CHECK(parse("hermes", "<think>never closed").reasoning == "never closed");
}

TEST_CASE("whole calls in reasoning that is never closed are calls, those in closed reasoning are none") {
  const std::string call = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";
  OutputParserOptions options;
  options.prompt_end = "<think>\n";
  for (const std::size_t piece : {1U, 7U, 1000U}) {
    const ParsedOutput open = parse("qwen3_coder", "I call f.\n" + call, options, piece);
    CHECK(open.reasoning == "I call f.");
    REQUIRE(open.tool_calls.size() == 1);
    CHECK(open.tool_calls[0].arguments == R"({"a": "1"})");
    const ParsedOutput closed = parse("qwen3_coder", "Perhaps " + call + "\n</think>\nNo.", options, piece);
    CHECK(closed.reasoning == "Perhaps " + call);
    CHECK(closed.tool_calls.empty());
    CHECK(closed.content == "No.");
    const ParsedOutput other = parse("glm45", "Hm.<tool_call>f\n</tool_call>", options, piece);
    CHECK(other.reasoning == "Hm.");
    CHECK(other.tool_calls.size() == 1);
    const ParsedOutput cut_off = parse("qwen3_coder", "A <tool_call> begins <function=f>", options, piece);
    CHECK(cut_off.reasoning == "A <tool_call> begins <function=f>");
    CHECK(cut_off.tool_calls.empty());
  }
}

TEST_CASE("reasoning closed before it began is empty") {
  for (const char* text : {"</think>\n\nHello", " \n</think>Hello"}) {
    CHECK(parse("hermes", text).content == "Hello");
    CHECK(parse("hermes", text).reasoning.empty());
  }
  CHECK(parse("hermes", "Hello</think>").content == "Hello</think>");
  OutputParserOptions raw;
  raw.parse_reasoning = false;
  CHECK(parse("hermes", "</think>Hello", raw).content == "</think>Hello");
}

TEST_CASE("line ends around a value in tags belong to the tags in pairs") {
  const auto value_of = [](const std::string& written) {
    return parse("qwen3_coder",
                 "<tool_call><function=get_weather><parameter=city>" + written + "</parameter></function></tool_call>")
        .tool_calls.at(0)
        .arguments;
  };
  CHECK(value_of("\nParis\n") == R"({"city": "Paris"})");
  CHECK(value_of("\n\nParis\n\n") == R"({"city": "\nParis\n"})");
  CHECK(value_of("Paris\n") == R"({"city": "Paris\n"})");
  CHECK(value_of("  Paris") == R"({"city": "  Paris"})");
  CHECK(value_of("\n") == R"({"city": ""})");
}

TEST_CASE("one parameter may wrap all arguments, and is not streamed as if it were one of them") {
  const auto call = [](const std::string& parameters) {
    return "<｜DSML｜tool_calls><｜DSML｜invoke name=\"get_weather\">" + parameters +
           "</｜DSML｜invoke></｜DSML｜tool_calls>";
  };
  const std::string wrapper =
      R"(<｜DSML｜parameter name="input" string="true">{"city": "Rome", "days": 2}</｜DSML｜parameter>)";
  const std::string other = R"(<｜DSML｜parameter name="city" string="true">Rome</｜DSML｜parameter>)";
  for (const std::size_t piece : {1U, 9U, 1000U}) {
    CHECK(parse("deepseek_v4", call(wrapper), {}, piece).tool_calls.at(0).arguments ==
          R"({"city": "Rome", "days": 2})");
    CHECK(parse("deepseek_v4", call(wrapper + other), {}, piece).tool_calls.at(0).arguments ==
          R"({"input": "{\"city\": \"Rome\", \"days\": 2}", "city": "Rome"})");
  }
}

TEST_CASE("values written as Python writes them are JSON where the tool asks for more than text") {
  const auto hours = [](const std::string& written) {
    return parse("qwen3_coder",
                 "<tool_call><function=get_weather><parameter=hours>" + written + "</parameter></function></tool_call>")
        .tool_calls.at(0)
        .arguments;
  };
  CHECK(hours("['six', {'to': 7, 'sure': True}]") == R"({"hours": ["six", {"to": 7, "sure": true}]})");
  CHECK(hours("(six, seven)") == "{\"hours\": \"(six, seven)\"}");
  CHECK(parse("pythonic", "[f(month=07, offset=-001, zero=0, part=00.5)]").tool_calls.at(0).arguments ==
        R"({"month": 7, "offset": -1, "zero": 0, "part": 0.5})");
}

TEST_CASE("Kimi K3's attributes say what its values are") {
  const std::string text =
      "<|open|>response<|sep|>I look.<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"f\" "
      "index=\"1\"<|sep|><|open|>argument key=\"n\" type=\"number\"<|sep|>1.5<|close|>argument<|sep|><|open|>argument "
      "key=\"a&amp;b\" type=\"string\"<|sep|>{}\n<|close|>argument<|sep|><|open|>argument key=\"o\" "
      "type=\"object\"<|sep|>{\"x\":[]}<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
      "<|close|>message<|sep|>";
  OutputParserOptions options;
  options.prompt_end = "<|open|>think<|sep|>";
  for (const std::size_t piece : {1U, 11U, 1000U}) {
    const ParsedOutput output = parse("kimi_k3", "Hm.<|close|>think<|sep|>" + text, options, piece);
    CHECK(output.reasoning == "Hm.");
    CHECK(output.content == "I look.");
    REQUIRE(output.tool_calls.size() == 1);
    CHECK(output.tool_calls[0].name == "f");
    CHECK(output.tool_calls[0].arguments == R"({"n": 1.5, "a&b": "{}\n", "o": {"x": []}})");
  }
  CHECK(detect_tool_format("<|open|>{{ channel }}<|sep|>").name == "kimi_k3");
}

TEST_CASE("tags around the answer go where the reasoning is taken out") {
  const std::string text = "<think>\nHm.\n</think>\n<answer>\nYes.\n</answer>";
  for (const std::size_t piece : {1U, 5U, 1000U}) {
    CHECK(parse("hunyuan_a13b", text, {}, piece).content == "Yes.");
    CHECK(parse("hunyuan_a13b", text, {}, piece).reasoning == "Hm.");
  }
  OutputParserOptions raw;
  raw.parse_reasoning = false;
  CHECK(parse("hunyuan_a13b", text, raw).content == text);
  const ToolFormat asked = detect_tool_format("Write thoughts between <think></think>, then <response></response>.");
  CHECK(asked.answer_tags.size() == 2);
  CHECK(detect_tool_format("Answer <response>so</response>.").answer_tags.empty());
  const ToolFormat told = detect_tool_format("After 'Here is my thought process:' and 'Here is my response:' write.");
  CHECK(told.think_end == "Here is my response:");
}

TEST_CASE("what only looks like a call stays content") {
  CHECK(parse("hermes", "a <tool_call> tag").content == "a <tool_call> tag");
  CHECK(parse("llama3_json", "{\"answer\": 42}").content == "{\"answer\": 42}");
  CHECK(parse("llama3_json", "{\"name\": \"unknown\", \"parameters\": {}}").content ==
        "{\"name\": \"unknown\", \"parameters\": {}}");
  CHECK(parse("pythonic", "[1, 2] and [a link](url)").content == "[1, 2] and [a link](url)");
  OutputParserOptions no_tools;
  no_tools.parse_tools = false;
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  CHECK(parse("hermes", call, no_tools).content == call);
}

TEST_CASE("a call cut off by the end of the output keeps what there is") {
  const ParsedOutput output = parse("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, 2");
  REQUIRE(output.tool_calls.size() == 1);
  CHECK(output.tool_calls[0].name == "f");
  CHECK(output.tool_calls[0].arguments == "{\"a\": [1, ");
  CHECK(output.content.empty());
}

TEST_CASE("text after a call is content again") {
  const ParsedOutput output = parse("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\nDone.");
  CHECK(output.tool_calls.size() == 1);
  CHECK(output.content == "Done.");
}

// Random texts made of the pieces formats are made of: whatever the cuts, the message is the same.
TEST_CASE("the message does not depend on how the text is cut") {
  std::mt19937 random(7);
  for (const auto name : tool_format_names()) {
    const ToolFormat& format = *find_tool_format(name);
    std::vector<std::string> parts = {
        "Hello",  " ",          "\n",          "{",  "}",  "[",
        "]",      ",",          ":",           "\"", "\\", "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
        "f(a=1)", "[f(a='x')]", "get_weather", "é",  "<",  ">",
        "1",      "null",       "call:f{a:1}"};
    for (const auto text : {format.think_begin, format.think_end, format.name_begin, format.name_end, format.call_end,
                            format.parameter_begin, format.key_end, format.parameter_end, format.value_begin,
                            format.string_quote, format.call_id, format.tag_mark}) {
      if (!text.empty()) parts.emplace_back(text);
    }
    for (const auto text : format.wrapper_keys)
      parts.emplace_back(text);
    for (const auto text : format.starts)
      parts.insert(parts.end(), 3, std::string(text));
    for (const auto text : format.ends)
      parts.emplace_back(text);
    for (int round = 0; round < 150; ++round) {
      std::string text;
      for (std::size_t i = random() % 14; i > 0; --i)
        text += parts[random() % parts.size()];
      OutputParserOptions options;
      options.eager = random() % 2 == 0;
      options.parse_reasoning = random() % 3 != 0;
      if (random() % 3 == 0) options.prompt_end = format.think_begin;
      INFO(name << (options.eager ? " eager " : " ") << text);
      const ParsedOutput whole = parse(name, text, options, text.size() + 1);
      for (const std::size_t piece : {1U, 3U, 8U}) {
        const ParsedOutput cut = parse(name, text, options, piece);
        REQUIRE(cut.content == whole.content);
        REQUIRE(cut.reasoning == whole.reasoning);
        REQUIRE(cut.tool_calls.size() == whole.tool_calls.size());
        for (std::size_t i = 0; i < cut.tool_calls.size(); ++i) {
          REQUIRE(cut.tool_calls[i].name == whole.tool_calls[i].name);
          REQUIRE(cut.tool_calls[i].id == whole.tool_calls[i].id);
          REQUIRE(cut.tool_calls[i].arguments == whole.tool_calls[i].arguments);
        }
      }
    }
  }
}

TEST_CASE("deeply nested and endless calls are taken in linear time and bounded depth") {
  std::string nested = "<tool_call>{\"name\": \"f\", \"arguments\": ";
  nested += std::string(100'000, '[');
  CHECK(parse("hermes", nested, {}, 1000).tool_calls.size() == 1);
  std::string python = "[f(a=" + std::string(100'000, '(');
  CHECK_NOTHROW(parse("pythonic", python, {}, 1000));
  std::string braces = "<|tool_call>call:f{a:" + std::string(100'000, '{');
  CHECK_NOTHROW(parse("gemma4", braces, {}, 1000));
  const std::string longer =
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"" + std::string(2'000'000, 'x') + "\"}}</tool_call>";
  CHECK(parse("hermes", longer, {}, 64).tool_calls[0].arguments.size() == 2'000'000 + 9);
}

TEST_CASE("names of formats are found however they are written") {
  CHECK(find_tool_format("Qwen3Coder") == find_tool_format("qwen3_coder"));
  CHECK(find_tool_format("DeepSeekV31")->name == "deepseek_v31");
  CHECK(find_tool_format("no such format") == nullptr);
  CHECK(detect_tool_format("{{ messages }}").name == "json");
}

TEST_CASE("read by name, what is no whole call makes all of it content") {
  struct Case {
    const char* format;
    const char* text;
    std::size_t num_calls;
    const char* content;
  };
  const Case cases[] = {
      {"hermes", R"(<tool_call>{"name": "f"}</tool_call>)", 0, R"(<tool_call>{"name": "f"}</tool_call>)"},
      {"hermes", R"(<tool_call>{"name": "f", "arguments": {}}</tool_call><tool_call>no</tool_call>)", 0,
       R"(<tool_call>{"name": "f", "arguments": {}}</tool_call><tool_call>no</tool_call>)"},
      {"hermes",
       R"(<tool_call>{"name": "f", "arguments": {}}</tool_call> and <tool_call>{"name": "g", "arguments": {}}</tool_call>)",
       2, ""},
      {"llama3_json", R"({"name": "f"})", 0, R"({"name": "f"})"},
      {"granite", R"(<tool_call>[{"name": "f", "arguments": {}}] and more)", 0,
       R"(<tool_call>[{"name": "f", "arguments": {}}] and more)"},
      {"jamba", R"(<tool_calls>[{"name": "f", "arguments": {}}])", 0,
       R"(<tool_calls>[{"name": "f", "arguments": {}}])"},
      {"pythonic", "[f(a=1)] and more", 0, "[f(a=1)] and more"},
      {"pythonic", "[f(a=1)", 0, "[f(a=1)"},
      {"olmo3", "First.<function_calls>f(a=1)</function_calls>", 1, "First."},
      {"xlam", "So:\n```json\n[{\"name\": \"f\", \"arguments\": {}}]\n```", 1, "So:"},
      {"xlam", R"(<think>hm</think>[{"name": "f", "arguments": {}}])", 1, "<think>hm</think>"},
      {"qwen3_coder",
       "<tool_call><function=f></function></tool_call> and <tool_call><function=g></function></tool_call>", 2, ""},
      {"apertus", R"(So: <|tools_prefix|>[{"f": {"a": 1}})", 1, "So:"},
      {"mistral", R"([TOOL_CALLS] [{"name": "f", "arguments": {}})", 0,
       R"([TOOL_CALLS] [{"name": "f", "arguments": {}})"},
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f<|tool_call_argument_begin|>{}<|tool_call_end|>"
       "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
       1, ""},
  };
  OutputParserOptions options;
  options.eager = false;
  options.parse_reasoning = false;
  for (const auto& [format, text, num_calls, content] : cases) {
    for (const std::size_t piece : {1U, 4U, 1000U}) {
      INFO(format << " in pieces of " << piece << ": " << text);
      const ParsedOutput output = parse(format, text, options, piece);
      CHECK(output.tool_calls.size() == num_calls);
      CHECK(output.content == content);
    }
  }
}

TEST_CASE("values in XML are what the XML says") {
  OutputParserOptions options;
  options.parse_reasoning = false;
  const std::string text =
      R"(<function name="f"><param name="a"><![CDATA[x < y && "z"]]></param><param name="b">1 &lt; 2 &amp;amp;</param></function>)";
  const ParsedOutput output = parse("minicpm5", text, options, 3);
  REQUIRE(output.tool_calls.size() == 1);
  CHECK(output.tool_calls[0].arguments == R"({"a": "x < y && \"z\"", "b": "1 < 2 &amp;"})");
  // Tags inside CDATA are text, as are the spaces around it.
  const std::string tags = "<function name=\"f\"><param name=\"a\"><![CDATA[  <b></param>\n]]></param></function>";
  for (const std::size_t piece : {1U, 6U, 1000U})
    CHECK(parse("minicpm5", tags, options, piece).tool_calls.at(0).arguments == R"({"a": "  <b></param>\n"})");
}

TEST_CASE("a second section of calls counts where the output is read at its end, too") {
  const std::string section = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:";
  const std::string call = "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";
  for (const bool eager : {true, false}) {
    OutputParserOptions options;
    options.eager = eager;
    const ParsedOutput output = parse("kimi_k2", section + "0" + call + "\n" + section + "1" + call, options, 7);
    REQUIRE(output.tool_calls.size() == 2);
    CHECK(output.tool_calls[1].name == "f");
    CHECK(output.tool_calls[1].arguments == "{}");
  }
}

}  // namespace
}  // namespace quire
