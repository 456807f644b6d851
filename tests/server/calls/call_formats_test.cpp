// Every tool format as its models write it, through grammar and reader: free and strict, whole and in every chunking.
#include <catch2/catch.hpp>
#include <set>

#include "core/grammar/compiler.h"
#include "core/text/tools/output_parser.h"
#include "server/api/common/json.h"
#include "server/api/conversation/call_grammar.h"
#include "tests/server/calls/byte_compiler.h"
#include "tests/server/calls/call_examples.h"
#include "tests/server/calls/grammar_writer.h"
#include "tests/support/material.h"

using namespace quire;
using namespace quire::test;

namespace call_formats {

enum class Mode { kFree, kStrict, kRequired };

Json tools() {
  return Json::array(
      {{{"type", "function"}, {"function", {{"name", "add"}, {"parameters", Json::parse(kAddSchema)}}}}});
}

GrammarSpec spec_of(const ToolFormat& format, Mode mode) {
  CalledTool add{"add"};
  if (mode != Mode::kFree) add.schema = kAddSchema;
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
  for (const CallExample& example : call_examples()) {
    INFO(example.format);
    const ToolFormat& format = *find_tool_format(example.format);
    seen.emplace(format.name);
    const std::string text = example.with("7");
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
        CHECK_FALSE(takes(compiler, spec, example.with(wrong)));
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
  const CallExample arguments{"functionary_v3.2", R"({"a": %, "b": "x < y"})"};
  const GrammarSpec prompted = spec_of(*find_tool_format("functionary_v3.2"), Mode::kStrict);
  CHECK(takes(compiler, prompted, "add\n" + arguments.with("7")));
  CHECK_FALSE(takes(compiler, prompted, "add\n" + arguments.with("true")));
  CHECK(takes(compiler, prompted, "all\nHello.>>>add\n" + arguments.with("7")));
}

TEST_CASE("an answer's schema stands beside calls: one or the other, and no other text") {
  const GrammarCompiler compiler = byte_compiler();
  auto answer = std::make_shared<GrammarSpec>();
  answer->kind = GrammarSpec::Kind::kJsonSchema;
  answer->text =
      R"({"type":"object","properties":{"x":{"type":"string"}},"required":["x"],"additionalProperties":false})";
  for (const CallExample& example : call_examples()) {
    INFO(example.format);
    const std::string text = example.with("7");
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
