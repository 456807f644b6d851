// Every tool format as its models write it, through grammar and reader: free and strict, whole and in every chunking.
#include <catch2/catch.hpp>
#include <set>

#include "core/text/tools/output_parser.h"
#include "server/api/common/json.h"
#include "server/api/conversation/call_grammar.h"
#include "tests/server/byte_compiler.h"
#include "tests/server/grammar_writer.h"
#include "tests/support/material.h"

using namespace quire;
using namespace quire::test;

namespace call_formats {

const std::string kSchema = R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"anyOf":[{"$ref":"#/$defs/S"},
    {"type":"null"}]},"c":{"$ref":"#/$defs/C"}},"required":["a"],"additionalProperties":false,
    "$defs":{"S":{"type":"string"},"C":{"type":"object","properties":{"d":{"type":"array","items":{"type":"boolean"}}},
    "required":["d"],"additionalProperties":false}}})";

// A call of `add` whose argument `a` is written where "%" stands; b is "x < y" and c {"d": [true]}, where they are
// there.
struct Example {
  const char* format;
  std::string text;
  const char* arguments = R"({"a": 7, "b": "x < y", "c": {"d": [true]}})";
};

const std::string kJson = R"({"a": %, "b": "x < y", "c": {"d": [true]}})";
const std::string kMark = "]<]minimax[>[";

// Formats whose arguments are JSON.
std::vector<Example> json_examples() {
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
std::vector<Example> tagged_examples() {
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

std::vector<Example> examples() {
  std::vector<Example> all = json_examples();
  const std::vector<Example> tagged = tagged_examples();
  all.insert(all.end(), tagged.begin(), tagged.end());
  return all;
}

enum class Mode { kFree, kStrict, kRequired };

Json tools() {
  return Json::array({{{"type", "function"}, {"function", {{"name", "add"}, {"parameters", Json::parse(kSchema)}}}}});
}

GrammarSpec spec_of(const ToolFormat& format, Mode mode) {
  CalledTool add{"add"};
  if (mode != Mode::kFree) add.schema = kSchema;
  add.exact = mode == Mode::kStrict;
  auto spec = call_grammar_spec(format, {add, CalledTool{"other"}}, true);
  REQUIRE(spec);
  spec->required = mode == Mode::kRequired;
  spec->free_text = mode != Mode::kRequired;
  return *std::move(spec);
}

bool takes(const GrammarCompiler& compiler, const GrammarSpec& spec, const std::string& text) {
  const auto grammar = compiler.compile(spec);
  if (!grammar) FAIL(grammar.error().message);
  GrammarWriter writer(**grammar);
  return writer.write(text) && writer.may_end();
}

std::string filled(const std::string& text, const std::string& value) {
  const std::size_t at = text.find('%');
  return text.substr(0, at) + value + text.substr(at + 1);
}

ParsedOutput read(const ToolFormat& format, const std::string& text, std::size_t piece) {
  OutputParser parser(format, read_tool_specs(tools()), {});
  ParsedOutput parsed;
  for (std::size_t i = 0; i < text.size(); i += piece)
    parsed.apply(parser.push(std::string_view(text).substr(i, piece)));
  parsed.apply(parser.finish());
  return parsed;
}

TEST_CASE("a call of every format passes its grammar, free, strict and required, and is read as it was meant") {
  const GrammarCompiler compiler = byte_compiler();
  std::set<std::string> seen;
  for (const Example& example : examples()) {
    INFO(example.format);
    const ToolFormat& format = *find_tool_format(example.format);
    seen.emplace(format.name);
    const std::string text = filled(example.text, "7");
    INFO(text);
    for (const Mode mode : {Mode::kFree, Mode::kStrict, Mode::kRequired}) {
      INFO(static_cast<int>(mode));
      const GrammarSpec spec = spec_of(format, mode);
      CHECK(takes(compiler, spec, text));
      if (mode != Mode::kRequired) CHECK(takes(compiler, spec, "No call."));
      if (mode == Mode::kRequired) CHECK_FALSE(takes(compiler, spec, "No call."));
      if (mode == Mode::kFree) continue;
      for (const char* const wrong : {"7.5", "true", "x", "\"7\""}) {
        INFO(wrong);
        CHECK_FALSE(takes(compiler, spec, filled(example.text, wrong)));
      }
    }
    for (std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}, text.size()}) {
      const ParsedOutput parsed = read(format, text, piece);
      REQUIRE(parsed.tool_calls.size() == 1);
      CHECK(parsed.tool_calls[0].name == "add");
      CHECK(nlohmann::json::parse(parsed.tool_calls[0].arguments) == nlohmann::json::parse(example.arguments));
      CHECK(parsed.content.empty());
    }
  }
  // Functionary's first mark is in the prompt.
  for (const std::string_view name : tool_format_names()) {
    if (name != "none" && name != "functionary_v3.2") CHECK(seen.count(std::string(name)) == 1);
  }
  const GrammarSpec prompted = spec_of(*find_tool_format("functionary_v3.2"), Mode::kStrict);
  CHECK(takes(compiler, prompted, "add\n" + filled(kJson, "7")));
  CHECK_FALSE(takes(compiler, prompted, "add\n" + filled(kJson, "true")));
  CHECK(takes(compiler, prompted, "all\nHello.>>>add\n" + filled(kJson, "7")));
}

TEST_CASE("an answer's schema stands beside calls: one or the other, and no other text") {
  const GrammarCompiler compiler = byte_compiler();
  auto answer = std::make_shared<GrammarSpec>();
  answer->kind = GrammarSpec::Kind::kJsonSchema;
  answer->text =
      R"({"type":"object","properties":{"x":{"type":"string"}},"required":["x"],"additionalProperties":false})";
  for (const Example& example : examples()) {
    INFO(example.format);
    const std::string text = filled(example.text, "7");
    for (const Mode mode : {Mode::kFree, Mode::kStrict}) {
      GrammarSpec spec = spec_of(*find_tool_format(example.format), mode);
      spec.free_text = false;
      spec.answer = answer;
      CHECK(takes(compiler, spec, text));
      CHECK(takes(compiler, spec, R"({"x": "y"})"));
      CHECK_FALSE(takes(compiler, spec, R"({"x": 1})"));
      CHECK_FALSE(takes(compiler, spec, "Sure."));
      CHECK_FALSE(takes(compiler, spec, ""));
    }
  }
}

TEST_CASE("JSON of calls has JSON's freedom: any escape, any white space") {
  const GrammarCompiler compiler = byte_compiler();
  const auto free = [&](const char* format, const std::string& text) {
    return takes(compiler, spec_of(*find_tool_format(format), Mode::kFree), text);
  };
  for (const std::string value :
       {R"("\ud83d\ude00")", R"("\ud55c\b\/")", "{\n\t\t\t\r\n                    \"x\":[\t1e-7]}"}) {
    const std::string call = "{\"name\": \"add\",\t\"arguments\": {\"a\": " + value + "}}";
    CHECK(free("mistral", "[TOOL_CALLS][" + call + "]"));
    CHECK(free("llama3_json", call));
    CHECK(free("jamba", "<tool_calls>[" + call + "]</tool_calls>"));
  }
  for (const std::string value :
       {R"("\u00e9\x41\n\N")", "(1, 'x')", "()", "[1,]", "+1", ".5", "07", "1_000", "-0.5e3", "'a\nb'"})
    CHECK(free("lfm2", "<|tool_call_start|>[add(a=" + value + ", b-c.d=None)]<|tool_call_end|>"));
}

TEST_CASE("strict text is held to its words, patterns and lengths in every form") {
  const GrammarCompiler compiler = byte_compiler();
  const std::string schema =
      R"({"type":"object","properties":{"u":{"enum":["C","F"]},"p":{"type":"string","pattern":"^[a-z]+$"},
          "n":{"type":["integer","null"],"maximum":9}},"required":["u","p"],"additionalProperties":false})";
  const auto strict = [&](const char* format, const std::string& text) {
    auto spec = call_grammar_spec(*find_tool_format(format), {CalledTool{"add", schema, true}}, true);
    return takes(compiler, *spec, text);
  };
  const auto qwen = [&](const std::string& parameters) {
    return strict("qwen3_coder", "<tool_call>\n<function=add>\n" + parameters + "</function>\n</tool_call>");
  };
  const std::string p = "<parameter=p>\nab\n</parameter>\n";
  CHECK(qwen("<parameter=u>\nC\n</parameter>\n" + p));
  CHECK(qwen(p + "<parameter=n>\n3\n</parameter>\n<parameter=u>F</parameter>\n"));
  CHECK(qwen(p + "<parameter=u>F</parameter>\n<parameter=n>None</parameter>"));
  CHECK_FALSE(qwen("<parameter=u>\nK\n</parameter>\n" + p));
  CHECK_FALSE(qwen("<parameter=u>\nC\n</parameter>\n<parameter=p>\nAB\n</parameter>\n"));
  CHECK_FALSE(qwen("<parameter=u>\nC\n</parameter>\n"));
  CHECK_FALSE(qwen(p + p + "<parameter=u>\nC\n</parameter>\n"));
  CHECK_FALSE(qwen("<parameter=u>\nC\n</parameter>\n" + p + "<parameter=z>\n1\n</parameter>\n"));
  CHECK_FALSE(qwen("<parameter=u>\nC\n</parameter>\n" + p + "<parameter=n>\n10\n</parameter>\n"));
  const auto gemma = [&](const std::string& arguments) {
    return strict("gemma4", "<|tool_call>call:add{" + arguments + "}<tool_call|>");
  };
  const std::string q = "<|\"|>";
  CHECK(gemma("p:" + q + "ab" + q + ",u:" + q + "C" + q + ",n:null"));
  CHECK_FALSE(gemma("p:" + q + "ab" + q + ",u:" + q + "K" + q));
  CHECK_FALSE(gemma("p:" + q + "ab" + q));
  CHECK(strict("lfm2", "<|tool_call_start|>[add(u='C', p=\"ab\", n=3)]<|tool_call_end|>"));
  CHECK_FALSE(strict("lfm2", "<|tool_call_start|>[add(u='K', p=\"ab\")]<|tool_call_end|>"));
}

TEST_CASE("outputs of the material pass the grammar of their template's format") {
  QUIRE_REQUIRE_MATERIAL(file, "tool-calls/llamacpp-chat-parse.dev.jsonl");
  QUIRE_REQUIRE_MATERIAL(templates, "chat-templates/templates");
  const GrammarCompiler compiler = byte_compiler();
  std::size_t num_calls = 0;
  for (const auto& text : read_lines(file)) {
    const Json line = Json::parse(text);
    const auto source = templates / line.at("template").get<std::string>();
    const bool counts = std::filesystem::exists(source) && !line.value("is_partial", false) &&
                        !line.at("expected").at("tool_calls").empty();
    if (!counts) continue;
    INFO(line.at("id") << " " << line.at("template") << " " << line.at("input"));
    const ToolFormat format = detect_tool_format(read_file(source));
    for (const bool strict : {false, true}) {
      std::vector<CalledTool> called;
      for (const Json& tool : line.at("tools")) {
        const Json& function = tool.contains("function") ? tool["function"] : tool;
        called.push_back(
            {function.at("name").get<std::string>(), strict ? dump_json(function.at("parameters")) : "", strict});
      }
      auto spec = call_grammar_spec(format, called, true);
      REQUIRE(spec);
      CHECK(takes(compiler, *spec, line.at("input").get<std::string>()));
    }
    ++num_calls;
  }
  CHECK(num_calls > 60);
}

}  // namespace call_formats
