// Values of calls: where they end, their types, and what is left of a call that is cut off.
#include "core/base/json/json.h"
#include "core/text/tools/output_parser.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace quire {
namespace {

const std::vector<ToolSpec> kValueTools = {
    {"get_weather", {{"city", {"string"}, true}, {"days", {"integer"}, false}, {"hours", {"array"}, false}}},
    {"f", {}}};

OutputParser value_parser(std::string_view format, OutputParserOptions options = {}) {
  const ToolFormat* found = find_tool_format(format);
  REQUIRE(found != nullptr);
  return OutputParser(*found, kValueTools, std::move(options));
}

ParsedOutput parse_values(std::string_view format, std::string_view text, OutputParserOptions options = {},
                          std::size_t piece = 1) {
  OutputParser parser = value_parser(format, std::move(options));
  ParsedOutput output;
  for (std::size_t i = 0; i < text.size(); i += piece)
    output.apply(parser.push(text.substr(i, piece)));
  output.apply(parser.finish());
  return output;
}

TEST_CASE("DeepSeek's attributes say what its values are, whatever the tool says") {
  const std::string text =
      "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"n\" string=\"false\">1.5"
      "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"o\" string=\"false\">{\"x\":[\"</｜DSML｜parameter>\"]}"
      "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"s\" string=\"true\">7</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
      "</｜DSML｜function_calls>";
  for (const std::size_t piece : {1U, 11U, 1000U}) {
    const ParsedOutput output = parse_values("deepseek_v32", text, {}, piece);
    REQUIRE(output.tool_calls.size() == 1);
    CHECK(output.tool_calls[0].arguments == R"({"n": 1.5, "o": {"x": ["</｜DSML｜parameter>"]}, "s": "7"})");
  }
}

TEST_CASE("a value in tags ends at the closing tag that the rest of the call follows") {
  struct Case {
    const char *format, *begin, *value, *end;
  };
  const Case cases[] = {
      {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=o>\n", "<c>\n<parameter name=\"k\">5</parameter>\n</c>",
       "\n</parameter>\n</function>\n</tool_call>"},
      {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=o>\n", "a</function>\n<parameter=b> </tool_call>\n</x>",
       "\n</parameter>\n</function>\n</tool_call>"},
      {"glm45", "<tool_call>f<arg_key>o</arg_key><arg_value>", "a</arg_value> b <arg_key>c</tool_call>",
       "</arg_value></tool_call>"},
      {"minimax_m2", "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"o\">", "</parameter>\n<x></invoke>",
       "</parameter>\n</invoke>\n</minimax:tool_call>"},
  };
  for (const Case& each : cases) {
    for (const std::size_t piece : {1U, 3U, 1000U}) {
      INFO(each.format << " " << each.value);
      OutputParserOptions options;
      options.prompt_end = "</think>";
      const ParsedOutput output =
          parse_values(each.format, std::string(each.begin) + each.value + each.end, options, piece);
      REQUIRE(output.tool_calls.size() == 1);
      CHECK(Json::parse(output.tool_calls[0].arguments) == Json{{"o", each.value}});
    }
  }
}

TEST_CASE("a call that is cut off is never closed into arguments that parse") {
  const std::pair<const char*, const char*> calls[] = {
      {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\nx y\n</parameter>\n</function>\n</tool_call>"},
      {"seed_oss", "<seed:tool_call>\n<function=f>\n<parameter=a>x y</parameter>\n</function>\n</seed:tool_call>"},
      {"glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x y</arg_value>\n</tool_call>"},
      {"gemma4", "<|tool_call>call:f{a:<|\"|>x y<|\"|>,b:[{c:1}]}<tool_call|>"},
      {"kimi_k3",
       "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"a\" "
       "type=\"string\"<|sep|>x y<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"},
      {"minimax_m3",
       "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>x y]<]minimax[>[</a>]<]minimax[>["
       "</invoke>\n]<]minimax[>[</tool_call>"},
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x y\"}}\n</tool_call>"},
      {"harmony", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": \"x y\"}<|call|>"},
      {"lfm2", "<|tool_call_start|>[f(a='x y')]<|tool_call_end|>"},
  };
  for (const auto& [format, text] : calls) {
    const std::string whole = text;
    const ParsedOutput uncut = parse_values(format, whole);
    REQUIRE(uncut.tool_calls.size() == 1);
    const Json arguments = Json::parse(uncut.tool_calls[0].arguments);
    for (const bool eager : {true, false}) {
      for (std::size_t length = 1; length < whole.size(); ++length) {
        INFO(format << " " << whole.substr(0, length));
        OutputParserOptions options;
        options.eager = eager;
        options.exact = true;
        for (const ParsedToolCall& call : parse_values(format, whole.substr(0, length), options).tool_calls) {
          const Json parsed = Json::parse(call.arguments, nullptr, false);
          CHECK((parsed.is_discarded() || parsed == arguments));
        }
      }
    }
  }
}

TEST_CASE("text behind a call comes after it, whatever comes at once") {
  for (const bool eager : {true, false}) {
    OutputParserOptions options;
    options.eager = eager;
    options.exact = true;
    OutputParser parser = value_parser("qwen3_coder", options);
    std::vector<OutputDelta> deltas =
        parser.push("Hm. <tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>\nDone");
    for (const OutputDelta& delta : parser.finish())
      deltas.push_back(delta);
    std::string order;
    for (const OutputDelta& delta : deltas) {
      if (!delta.content.empty()) order += 'c';
      if (!delta.tool_calls.empty()) order += 't';
    }
    CHECK(order == "ctc");
  }
}

TEST_CASE("tags in tags are objects and lists, typed by the tool's schema") {
  const Json tools = Json::parse(R"([{"name": "f", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "on": {"$ref": "#/$defs/On"},
      "tags": {"type": "array", "items": {"type": "string"}}, "none": {"type": "array"},
      "opts": {"type": "object", "properties": {"n": {"type": "number"}, "s": {"type": "string"}}}},
      "$defs": {"On": {"type": "boolean"}}}}])");
  const std::string m = "]<]minimax[>[";
  const std::string text = "Hm.</mm:think>I look." + m + "<tool_call>\n" + m + "<invoke name=\"f\">" + m +
                           "<city>Rio <b>" + m + "</city>" + m + "<days>3" + m + "</days>\n" + m + "<on>true" + m +
                           "</on>" + m + "<tags>" + m + "<item>1" + m + "</item>" + m + "<item>b" + m + "</item>" + m +
                           "</tags>" + m + "<none>" + m + "</none>" + m + "<opts>" + m + "<n>2.5" + m + "</n>" + m +
                           "<s>x" + m + "</s>" + m + "</opts>" + m + "</invoke>\n" + m + "<invoke name=\"g\">" + m +
                           "</invoke>\n" + m + "</tool_call>";
  for (const std::size_t piece : {1U, 5U, 1000U}) {
    OutputParserOptions options;
    options.prompt_end = "<mm:think>";
    OutputParser parser(*find_tool_format("minimax_m3"), read_tool_specs(tools), options);
    ParsedOutput output;
    for (std::size_t i = 0; i < text.size(); i += piece)
      output.apply(parser.push(std::string_view(text).substr(i, piece)));
    output.apply(parser.finish());
    CHECK(output.reasoning == "Hm.");
    CHECK(output.content == "I look.");
    REQUIRE(output.tool_calls.size() == 2);
    CHECK(
        output.tool_calls[0].arguments ==
        R"({"city": "Rio <b>", "days": 3, "on": true, "tags": ["1", "b"], "none": [], "opts": {"n": 2.5, "s": "x"}})");
    CHECK(output.tool_calls[1].arguments == "{}");
  }
  CHECK(detect_tool_format("]<]minimax[>[<invoke name=").name == "minimax_m3");
}

TEST_CASE("a whole call behind a text is a call, where bare ones may stand anywhere too") {
  OutputParserOptions options;
  options.eager = false;
  options.exact = true;
  OutputParser parser(*find_tool_format("lfm2.5"), {}, options);
  ParsedOutput output;
  output.apply(parser.push("I look. <|tool_call_start|>[f(a=\"x\")]<|tool_call_end|>"));
  output.apply(parser.finish());
  REQUIRE(output.tool_calls.size() == 1);
  CHECK(Json::parse(output.tool_calls[0].arguments) == Json{{"a", "x"}});
}

TEST_CASE("parameters have the types that their schemas say, behind references and parts and by their keywords") {
  const Json tools = Json::parse(R"([{"name": "f", "parameters": {"type": "object", "properties": {
      "ref": {"$ref": "#/$defs/Loc"}, "all": {"allOf": [{"$ref": "#/$defs/N"}]},
      "opt": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}, "props": {"properties": {"a": {}}},
      "items": {"items": {}}, "const": {"const": 5}, "text": {"minLength": 1}, "any": {}, "free": true,
      "null": {"type": "integer", "nullable": true}},
      "$defs": {"Loc": {"type": "object"}, "N": {"type": "integer"}}}}])");
  const auto value = [&](const std::string& key, const std::string& text) {
    OutputParser parser(*find_tool_format("qwen3_coder"), read_tool_specs(tools), {});
    ParsedOutput output;
    output.apply(parser.push("<tool_call>\n<function=f>\n<parameter=" + key + ">\n" + text +
                             "\n</parameter>\n</function>\n</tool_call>"));
    output.apply(parser.finish());
    return Json::parse(output.tool_calls.at(0).arguments).at(key);
  };
  CHECK(value("ref", R"({"a": 1})") == Json{{"a", 1}});
  CHECK(value("all", "3") == 3);
  CHECK(value("opt", "3") == 3);
  CHECK(value("opt", "null") == nullptr);
  CHECK(value("null", "null") == nullptr);
  CHECK(value("props", "{}") == Json::object());
  CHECK(value("items", "[1]") == Json{1});
  CHECK(value("const", "5") == 5);
  CHECK(value("text", "5") == "5");
  CHECK(value("any", R"({"a": 1})") == Json{{"a", 1}});
  CHECK(value("any", "5") == "5");
  CHECK(value("unknown", "{}") == "{}");
}

}  // namespace
}  // namespace quire
