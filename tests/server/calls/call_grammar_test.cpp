// Calls that are held once they have begun: in every format, whatever a model writes under its grammar, a call that
// began is one that the format's reader reads.
#include "server/api/conversation/call_grammar.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "core/grammar/compiler.h"
#include "core/text/tools/output_parser.h"
#include "server/api/common/json.h"
#include "tests/server/calls/byte_compiler.h"
#include "tests/server/calls/grammar_writer.h"
#include "tests/support/sanitizers.h"

using namespace quire;
using namespace quire::test;

namespace call_grammar {

const std::vector<std::string> kNames = {"add", "get_time", "get"};

std::optional<GrammarSpec> free_spec(const ToolFormat& format, bool parallel = true) {
  std::vector<CalledTool> called;
  for (const std::string& name : kNames)
    called.push_back({name});
  return call_grammar_spec(format, called, parallel);
}

Json tools() {
  Json list = Json::array();
  for (const std::string& name : kNames) {
    const Json parameters{{"type", "object"},
                          {"properties", {{"a", {{"type", "integer"}}}, {"b", {{"type", "string"}}}}}};
    list.push_back({{"type", "function"}, {"function", {{"name", name}, {"parameters", parameters}}}});
  }
  return list;
}

// Pieces of calls that a model of the format may write in a wrong order.
std::vector<std::string> pieces_of(const ToolFormat& format) {
  std::vector<std::string> pieces = {"add", "get_time", "get", "a",    "b",  "=",    "1",   "x", "\"", "'",
                                     ",",   ":",        "{",   "}",    "[",  "]",    "(",   ")", "\n", " ",
                                     "<",   ">",        "/",   "True", "\\", "null", "}\n", "é"};
  for (const auto& list : {format.starts, format.ends}) {
    for (const std::string_view piece : list)
      pieces.emplace_back(piece);
  }
  for (const std::string_view piece :
       {format.name_begin, format.name_end, format.call_end, format.parameter_begin, format.key_end,
        format.parameter_end, format.value_begin, format.string_quote, format.tag_mark, format.list_mark}) {
    if (!piece.empty()) pieces.emplace_back(piece);
  }
  // These are special tokens, which no grammar allows inside a text.
  std::erase_if(pieces, [](const std::string& piece) {
    return (piece.find("<|") != std::string::npos && piece.find("|>") != std::string::npos) ||
           piece.find("<｜") != std::string::npos || piece.find("[TOOL_CALLS]") != std::string::npos;
  });
  return pieces;
}

// Brings the text to an end: the pieces that close, as long as it may not end.
void close(GrammarWriter& writer, const std::vector<std::string>& pieces, std::mt19937& random) {
  for (int i = 0; i < 4000 && !writer.may_end(); ++i) {
    if (!writer.write(pieces[random() % pieces.size()])) writer.write(writer.any_allowed(random));
  }
}

ParsedOutput read(const ToolFormat& format, const std::string& text, bool eager) {
  OutputParserOptions options;
  options.eager = eager;
  options.exact = !eager;
  OutputParser parser(format, read_tool_specs(tools()), options);
  ParsedOutput parsed;
  parsed.apply(parser.push(text));
  parsed.apply(parser.finish());
  return parsed;
}

// JSON's numbers may be larger than a parser's.
std::string without_exponents(const std::string& json) {
  std::string kept;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '"') in_string = !in_string;
    const bool is_exponent =
        !in_string && (json[i] == 'e' || json[i] == 'E') && i > 0 && std::isdigit(json[i - 1]) != 0;
    if (is_exponent) {
      i = json.find_first_of(",]} \t\r\n", i) - 1;
    } else {
      kept += json[i];
    }
    if (in_string && json[i] == '\\') kept += json[++i];
  }
  return kept;
}

std::shared_ptr<const Grammar> grammar_of(const GrammarCompiler& compiler, const GrammarSpec& spec) {
  const auto grammar = compiler.compile(spec);
  if (!grammar) FAIL(grammar.error().message);
  return *grammar;
}

void check_calls(const ParsedOutput& parsed, const ToolFormat& format) {
  REQUIRE_FALSE(parsed.tool_calls.empty());
  for (const ParsedToolCall& call : parsed.tool_calls) {
    const bool is_answer =
        std::find(format.answer_names.begin(), format.answer_names.end(), call.name) != format.answer_names.end();
    CHECK((is_answer || std::find(kNames.begin(), kNames.end(), call.name) != kNames.end()));
    const auto arguments = parse_json(without_exponents(call.arguments));
    CHECK((arguments && arguments->is_object()));
  }
}

// Whether a whole text passes the grammar of a format's calls.
class TakesText {
 public:
  explicit TakesText(const GrammarCompiler& compiler) : compiler_(compiler) {}
  bool operator()(const char* format, const std::string& text, bool parallel = true) const {
    const auto spec = free_spec(*find_tool_format(format), parallel);
    REQUIRE(spec);
    const auto grammar = grammar_of(compiler_, *spec);
    GrammarWriter writer(*grammar);
    return writer.write(text) && writer.may_end();
  }

 private:
  const GrammarCompiler& compiler_;
};

// A text that is a call from its first character on.
std::string opening_of(const ToolFormat& format, std::mt19937& random) {
  const std::string& name = kNames[random() % kNames.size()];
  const std::string space = random() % 2 == 0 ? "" : " ";
  if (format.syntax == CallSyntax::kPythonic) return space + "[" + space + name + space + "(";
  const std::string list = format.in_list ? "[" : "";
  return space + list + space + "{" + space + "\"name\":" + space + "\"" + name + "\"";
}

// Texts of `rounds` calls that began, of each format: each parses, and `least` of them have an end.
void check_begun_calls(int rounds, int least) {
  const GrammarCompiler compiler = byte_compiler();
  std::set<std::string> held;
  for (const std::string_view name : tool_format_names()) {
    const ToolFormat& format = *find_tool_format(name);
    const auto spec = free_spec(format);
    // Behind Functionary's mark content may stand, too.
    if (!spec || spec->triggers.empty() || !format.prompt_start.empty()) continue;
    held.emplace(name);
    const auto grammar = grammar_of(compiler, *spec);
    const std::vector<std::string> pieces = pieces_of(format);
    std::mt19937 random(7);
    int num_whole = 0;
    for (int round = 0; round < rounds; ++round) {
      GrammarWriter writer(*grammar);
      REQUIRE(writer.write("Sure, "));
      REQUIRE(writer.write(spec->triggers[random() % spec->triggers.size()]));
      for (int i = 0; i < 30; ++i)
        writer.write(pieces[random() % pieces.size()]);
      close(writer, pieces, random);
      INFO(name << ": " << writer.text());
      if (!writer.may_end()) continue;
      ++num_whole;
      // Some formats' calls count only where they begin the output, unless they are read as they come.
      check_calls(read(format, writer.text(),
                       format.begins_output || format.bare_anywhere || !format.prompt_start.empty() || round % 2 == 0),
                  format);
    }
    INFO(name);
    CHECK(num_whole >= least);
  }
  for (const char* const name :
       {"jamba",   "minimax",      "apriel",        "apriel_thinker", "nemotron_v2",  "firefunction",
        "granite", "hunyuan_a13b", "apertus",       "phi4_mini_json", "command_r7b",  "command_r",
        "hermes",  "qwen3_coder",  "glm45",         "minimax_m2",     "deepseek_v32", "seed_oss",
        "kimi_k3", "gemma4",       "functiongemma", "harmony",        "mistral",      "mistral_list",
        "olmo3",   "lfm2",         "lfm2.5",        "llama4_pythonic"}) {
    INFO(name);
    CHECK(held.count(name) == 1);
  }
}

TEST_CASE("a call that began parses in every format, whatever is written after its beginning") {
  check_begun_calls(10, kUnderThreadSanitizer ? 1 : 2);
}

TEST_CASE("a call that began parses in every format, whatever is written after its beginning, many times", "[.long]") {
  check_begun_calls(50, 10);
}

TEST_CASE("a call as its format writes it passes the grammar, with text before and after") {
  const GrammarCompiler compiler = byte_compiler();
  const TakesText takes(compiler);
  const std::string qwen =
      "<tool_call>\n<function=add>\n<parameter=a>\n1 < 2 </x>\nlines\n</parameter>\n</function>\n</tool_call>";
  CHECK(takes("qwen3_coder", "I add. <tool_ca " + qwen));
  CHECK(takes("qwen3_coder", qwen + "\n" + qwen + "\nDone."));
  CHECK_FALSE(takes("qwen3_coder", qwen + "\n" + qwen, false));
  CHECK(takes("qwen3_coder", "<function=get>\n</function>"));
  CHECK_FALSE(takes("qwen3_coder", "<tool_call>\n<function=sub>\n</function>\n</tool_call>"));
  CHECK_FALSE(takes("qwen3_coder", "<tool_call>\n<function=add>\n<parameter=a>\n1"));
  CHECK_FALSE(takes("qwen3_coder", "<tool_call>\n{\"name\": \"add\"}\n</tool_call>"));
  CHECK(takes("glm45", "<tool_call>get_time\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"));
  const std::string invoke = "<invoke name=\"add\">\n<parameter name=\"a\">1</parameter>\n</invoke>\n";
  CHECK(takes("minimax_m2", "<minimax:tool_call>\n" + invoke + invoke + "</minimax:tool_call>"));
  CHECK_FALSE(takes("minimax_m2", "<minimax:tool_call>\n" + invoke + invoke + "</minimax:tool_call>", false));
  CHECK(takes("gemma4", "<|tool_call>call:add{a:1,b:<|\"|>x, y<|\"|>}<tool_call|>"));
  CHECK(takes("gemma4",
              "<|tool_call>call:add{ application/json: -1e-7, b:<|\"|>if a < b: <p><|\"|>, c:[{d:null}]}<tool_call|>"));
  CHECK_FALSE(takes("gemma4", "<|tool_call>call:add{a:one}<tool_call|>"));
}

TEST_CASE("calls without marks are held where the format reads them, and no other text is") {
  const GrammarCompiler compiler = byte_compiler();
  std::set<std::string> held;
  for (const std::string_view name : tool_format_names()) {
    const ToolFormat& format = *find_tool_format(name);
    const auto spec = free_spec(format);
    const bool prompted = !format.prompt_start.empty() || format.syntax == CallSyntax::kHarmony;
    if (!spec || spec->openings.empty() || prompted) continue;
    held.emplace(name);
    INFO(name);
    const auto grammar = grammar_of(compiler, *spec);
    const std::vector<std::string> pieces = pieces_of(format);
    std::mt19937 random(11);
    int num_whole = 0;
    for (int round = 0; round < (kUnderThreadSanitizer ? 10 : 50); ++round) {
      GrammarWriter writer(*grammar);
      if (spec->opening_anywhere && round % 3 == 0) REQUIRE(writer.write("I call {it}, [now] "));
      REQUIRE(writer.write(opening_of(format, random)));
      CHECK_FALSE(writer.may_end());
      for (int i = 0; i < 30; ++i)
        writer.write(pieces[random() % pieces.size()]);
      close(writer, pieces, random);
      if (!writer.may_end()) continue;
      INFO(writer.text());
      ++num_whole;
      check_calls(read(format, writer.text(), format.bare_anywhere || round % 2 == 0), format);
    }
    CHECK(num_whole >= (kUnderThreadSanitizer ? 1 : 10));
    for (const char* const free : {"[1, 2] is a list", "{\"a\": 1} is an object", "I add [add] and more", "[adder(",
                                   "[a", "{\"name\": \"addition\", 7", "  [get_timer(x)"}) {
      GrammarWriter writer(*grammar);
      INFO(free);
      CHECK(writer.write(free));
      CHECK(writer.may_end());
    }
  }
  CHECK(held == std::set<std::string>{"json", "llama3_json", "llama4_pythonic", "lfm2.5", "pythonic", "xlam"});
  CHECK_FALSE(free_spec(*find_tool_format("none")));
  CHECK_FALSE(call_grammar_spec(*find_tool_format("hermes"), {}, true));
}

TEST_CASE("every format that has calls is held, but those whose calls begin as other text does") {
  std::set<std::string> free;
  for (const std::string_view name : tool_format_names()) {
    if (!free_spec(*find_tool_format(name))) free.emplace(name);
  }
  CHECK(free == std::set<std::string>{"none"});
}

TEST_CASE("calls as models write them pass the grammars of lists and of Mistral's marks") {
  const GrammarCompiler compiler = byte_compiler();
  const TakesText takes(compiler);
  CHECK(takes("pythonic", "[add(a=1, b='x'), get_time()]"));
  CHECK_FALSE(takes("pythonic", "[add(a=1, b='x'), get_time()]", false));
  CHECK_FALSE(takes("pythonic", "[add(a=1)] and text"));
  CHECK_FALSE(takes("pythonic", "[add(1)]"));
  CHECK(takes("llama4_pythonic", "<|python_start|>[add(a=1)]<|python_end|>"));
  CHECK(takes("olmo3", "Now <function_calls>\nadd(a=1, b=\"x\")\n</function_calls>"));
  CHECK(takes("lfm2", "<|tool_call_start|>[add(a=[1, {'k': None}])]<|tool_call_end|> done"));
  CHECK(takes("mistral", "Sure[TOOL_CALLS]add[ARGS]{\"a\": [1, {}]}[TOOL_CALLS]get[ARGS]{}"));
  CHECK_FALSE(takes("mistral", "[TOOL_CALLS]add[ARGS]{}[TOOL_CALLS]get[ARGS]{}", false));
  CHECK(takes("mistral", "[TOOL_CALLS]add{\"a\": 1}"));
  CHECK(takes("mistral", "[TOOL_CALLS]add[CALL_ID]123456789[ARGS]{\"a\": 1}"));
  CHECK(takes("mistral", "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}, \"id\": \"abcdefghi\"}]"));
  CHECK_FALSE(takes("mistral", "[TOOL_CALLS]sub[ARGS]{}"));
  CHECK_FALSE(takes("mistral", "[TOOL_CALLS]add[ARGS]{\"a\": "));
  CHECK(takes("llama3_json", "{\"name\": \"add\", \"parameters\": {\"a\": 1}}"));
  CHECK_FALSE(takes("llama3_json", "{\"name\": \"add\", \"parameters\": 1}"));
  CHECK(takes("lfm2.5", "I look. [add(a=1), get()] [a](b) [get()]"));
  CHECK_FALSE(takes("lfm2.5", "I look. [add(1)]"));
  CHECK(takes("harmony", " to=functions.add<|channel|>commentary json<|message|>{\"a\": 1}<|call|>"));
  CHECK_FALSE(takes("harmony", " to=functions.add<|channel|>commentary json<|message|>{\"a\": "));
  CHECK(takes("xlam", "[{\"name\": \"add\", \"arguments\": {}}, {\"name\": \"get\", \"arguments\": {}}]"));
}

TEST_CASE("lists of calls behind a mark pass as models write them, and the mark's word in other text stays free") {
  const GrammarCompiler compiler = byte_compiler();
  const TakesText takes(compiler);
  const std::string add = "{\"name\": \"add\", \"arguments\": {\"a\": 1}}";
  const std::string get = "{\"name\": \"get\", \"arguments\": {}}";
  CHECK(takes("jamba", "Sure. <tool_calls>[\n    " + add + ",\n    " + get + "\n]</tool_calls>"));
  CHECK_FALSE(takes("jamba", "<tool_calls>[" + add + ", " + get + "]</tool_calls>", false));
  CHECK_FALSE(takes("jamba", "<tool_calls>" + add + "</tool_calls>"));
  CHECK_FALSE(takes("jamba", "<tool_calls>[" + add + "]"));
  CHECK_FALSE(takes("jamba", "<tool_calls>[{\"name\": \"sub\", \"arguments\": {}}]</tool_calls>"));
  CHECK(takes("nemotron_v2", "<TOOLCALL>[" + add + "]</TOOLCALL>"));
  CHECK(takes("nemotron_v2", "<TOOLCALL>" + add + "</TOOLCALL>"));
  CHECK(takes("granite", "<|tool_call|>[" + add + "]"));
  CHECK_FALSE(takes("granite", "<|tool_call|>[" + add + "] and more"));
  CHECK(takes("apertus", "<|tools_prefix|>[{\"add\": {\"a\": 1}}, {\"get\": {}}]<|tools_suffix|> done"));
  CHECK(takes("phi4_mini_json", "functools[" + add + "]"));
  CHECK(takes("phi4_mini_json", "import functools\nfunctools.reduce(f, [1, 2])"));
  CHECK(takes("firefunction", "I call functools[" + add + ", " + get + "]"));
  CHECK_FALSE(takes("firefunction", " functools[1]"));
  const std::string deepseek =
      "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜>";
  CHECK(takes("deepseek_v3", "<｜tool▁calls▁begin｜>" + deepseek + "\n" + deepseek + "<｜tool▁calls▁end｜>"));
  CHECK_FALSE(takes("deepseek_v3", "<｜tool▁calls▁begin｜>" + deepseek));
  CHECK(takes("deepseek_v31",
              "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"));
  const std::string kimi = "<|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|>";
  CHECK(takes("kimi_k2", "I add.<|tool_calls_section_begin|>" + kimi + kimi + "<|tool_calls_section_end|>"));
  CHECK_FALSE(takes("kimi_k2", "<|tool_calls_section_begin|>" + kimi + kimi + "<|tool_calls_section_end|>", false));
  const std::string cohere = "{\"tool_name\": \"add\", \"parameters\": {\"a\": 1}}";
  CHECK(takes("command_r", "Action: ```json\n[\n    " + cohere + "\n]```"));
  CHECK(takes("command_r", "Action:```json\n[{\"tool_name\": \"directly_answer\", \"parameters\": {}}]```\nHello"));
  CHECK_FALSE(takes("command_r", "Action: ```json\n[{\"tool_name\": \"sub\", \"parameters\": {}}]```"));
  CHECK(takes("command_r7b", "<|START_ACTION|>[{\"tool_call_id\": \"0\", " + cohere.substr(1) + "]<|END_ACTION|>"));
}

// A value as JSON, and as Python writes it in one of its many ways.
struct Value {
  std::string json;
  std::string python;
};

std::string quoted_as_python(const std::string& text, std::mt19937& random) {
  const char quote = random() % 2 == 0 ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == quote || c == '\\') {
      out += std::string("\\") + c;
    } else {
      out += c;
    }
  }
  return out + quote;
}

std::string space(std::mt19937& random) {
  static const char* const kSpaces[] = {"", "", "", " ", "\n", "  "};
  return kSpaces[random() % std::size(kSpaces)];
}

Value text_value(std::mt19937& random) {
  static const char* const kTexts[] = {"",  "a", "it's", "say \"x\"", "back\\slash", "line\nline", "é",  "](", "),",
                                       "]", "'", "=",    "add(a=1)",  "[",           "{}",         "\\", ", ", "# no"};
  std::string text;
  for (auto i = random() % 3; i-- > 0;)
    text += kTexts[random() % std::size(kTexts)];
  return {Json(text).dump(), quoted_as_python(text, random)};
}

Value any_value(std::mt19937& random, int depth) {
  const auto kind = random() % (depth > 3 ? 4 : 6);
  static const char* const kNumbers[] = {"0", "-1", "12", "1.5", "-0.25", "1e5", "2.5E-3"};
  static const std::pair<const char*, const char*> kWords[] = {
      {"true", "True"}, {"false", "False"}, {"null", "None"}, {"true", "true"}, {"null", "null"}};
  if (kind < 2) return text_value(random);
  if (kind == 2) {
    const char* const number = kNumbers[random() % std::size(kNumbers)];
    return {number, number};
  }
  if (kind == 3) {
    const auto& [json, python] = kWords[random() % std::size(kWords)];
    return {json, python};
  }
  const bool is_list = kind == 4;
  Value whole{is_list ? "[" : "{", (is_list ? "[" : "{") + space(random)};
  const auto count = random() % 3;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) {
      whole.json += ",";
      whole.python += space(random) + "," + space(random);
    }
    if (!is_list) {
      const std::string key = "k" + std::to_string(i);
      whole.json += Json(key).dump() + ":";
      whole.python += quoted_as_python(key, random) + space(random) + ":" + space(random);
    }
    const Value item = any_value(random, depth + 1);
    whole.json += item.json;
    whole.python += item.python;
  }
  whole.json += is_list ? "]" : "}";
  whole.python += space(random) + (is_list ? "]" : "}");
  return whole;
}

struct WrittenCalls {
  std::string text;
  std::vector<std::pair<std::string, Json>> expected;
};

WrittenCalls any_calls(std::mt19937& random) {
  WrittenCalls calls{"[" + space(random), {}};
  const auto num_calls = 1 + random() % 3;
  const auto num_arguments = random() % 4;
  for (std::size_t i = 0; i < num_calls; ++i) {
    const std::string& name = kNames[random() % kNames.size()];
    if (i > 0) calls.text += space(random) + "," + space(random);
    calls.text += name + space(random) + "(" + space(random);
    std::string json = "{";
    for (std::size_t j = 0; j < num_arguments; ++j) {
      const Value value = any_value(random, 0);
      const std::string key = "p" + std::to_string(j);
      if (j > 0) calls.text += space(random) + "," + space(random);
      calls.text += key + space(random) + "=" + space(random) + value.python;
      json += (j > 0 ? ",\"" : "\"") + key + "\":" + value.json;
    }
    calls.text += space(random) + ")";
    calls.expected.emplace_back(name, Json::parse(json + "}"));
  }
  calls.text += space(random) + "]";
  return calls;
}

TEST_CASE("Python-form calls are read as what they say, whole and in pieces, and the grammar lets them pass") {
  const GrammarCompiler compiler = byte_compiler();
  const ToolFormat& format = *find_tool_format("pythonic");
  const auto grammar = grammar_of(compiler, *free_spec(format));
  std::mt19937 random(5);
  for (int round = 0; round < 400; ++round) {
    const WrittenCalls calls = any_calls(random);
    INFO(calls.text);
    GrammarWriter writer(*grammar);
    CHECK((writer.write(calls.text) && writer.may_end()));
    OutputParserOptions options;
    options.eager = round % 2 == 0;
    OutputParser parser(format, read_tool_specs(tools()), options);
    ParsedOutput parsed;
    for (std::size_t at = 0; at < calls.text.size();) {
      const std::size_t length = round % 4 < 2 ? calls.text.size() : 1 + random() % 7;
      parsed.apply(parser.push(std::string_view(calls.text).substr(at, length)));
      at += length;
    }
    parsed.apply(parser.finish());
    CHECK(parsed.content == "");
    REQUIRE(parsed.tool_calls.size() == calls.expected.size());
    for (std::size_t i = 0; i < calls.expected.size(); ++i) {
      CHECK(parsed.tool_calls[i].name == calls.expected[i].first);
      CHECK(Json::parse(parsed.tool_calls[i].arguments) == calls.expected[i].second);
    }
  }
}

TEST_CASE("a tool's name may be none of Python's") {
  const ToolFormat& format = *find_tool_format("pythonic");
  for (const char* const name : {"3d_view", "get-time", "a.b"}) {
    const std::string text = std::string("[") + name + "(a=1), " + name + "()]";
    OutputParser parser(format, {ToolSpec{name, {}}}, {});
    ParsedOutput parsed;
    parsed.apply(parser.push(text));
    parsed.apply(parser.finish());
    REQUIRE(parsed.tool_calls.size() == 2);
    CHECK(parsed.tool_calls[0].name == name);
  }
}

TEST_CASE("Python's lists may nest as deeply as the grammar lets them") {
  const ToolFormat& format = *find_tool_format("pythonic");
  const std::string text = "[add(a=" + std::string(3000, '[') + std::string(3000, ']') + ")]";
  for (const bool eager : {true, false}) {
    const ParsedOutput parsed = read(format, text, eager);
    REQUIRE(parsed.tool_calls.size() == 1);
    CHECK(parsed.tool_calls[0].arguments.size() > 6000);
  }
}

}  // namespace call_grammar
