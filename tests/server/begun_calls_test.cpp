// Calls that are held once they have begun: in every format, whatever a model writes under its grammar, a call that
// began is one that the format's reader reads.
#include "server/api/conversation/begun_calls.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "core/text/tools/output_parser.h"
#include "server/api/common/json.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace begun_calls {

const std::vector<std::string> kNames = {"add", "get_time", "get"};

Json tools() {
  Json list = Json::array();
  for (const std::string& name : kNames) {
    const Json parameters{{"type", "object"},
                          {"properties", {{"a", {{"type", "integer"}}}, {"b", {{"type", "string"}}}}}};
    list.push_back({{"type", "function"}, {"function", {{"name", name}, {"parameters", parameters}}}});
  }
  return list;
}

// A text as it grows under a grammar, one byte a token.
class Writer {
 public:
  explicit Writer(const Grammar& grammar) : grammar_(grammar), state_(grammar.start()), tried_(grammar.start()) {}

  const std::string& text() const { return text_; }
  bool may_end() { return allows(kEos); }
  bool write(char c) {
    if (!state_->accept(TokenId{static_cast<unsigned char>(c)})) return false;
    text_ += c;
    return true;
  }
  // All of it, or nothing.
  bool write(std::string_view text) {
    tried_->assign(*state_);
    for (const char c : text) {
      if (!tried_->accept(TokenId{static_cast<unsigned char>(c)})) return false;
    }
    for (const char c : text)
      write(c);
    return true;
  }
  char any_allowed(std::mt19937& random) {
    std::vector<char> allowed;
    // Other bytes only where the text must continue with one of a mark.
    for (int c = 1; c < 256 && (c < 128 || allowed.empty()); ++c) {
      if (allows(TokenId{c})) allowed.push_back(static_cast<char>(c));
    }
    INFO(text_);
    REQUIRE_FALSE(allowed.empty());
    return allowed[random() % allowed.size()];
  }

 private:
  bool allows(TokenId token) {
    std::vector<std::uint32_t> mask(9);
    state_->fill_mask(mask);
    const auto bit = static_cast<std::uint32_t>(token.value);
    return (mask[bit / 32] >> (bit % 32) & 1U) != 0;
  }

  const Grammar& grammar_;
  std::unique_ptr<GrammarState> state_;
  std::unique_ptr<GrammarState> tried_;
  std::string text_;
};

// What a model of the format writes when it errs: pieces of calls in any order.
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
        format.parameter_end, format.value_begin, format.string_quote, format.frame.begin, format.frame.middle,
        format.frame.end, format.frame.after, format.frame.before}) {
    if (!piece.empty()) pieces.emplace_back(piece);
  }
  // These are special tokens, which no grammar allows inside a text.
  std::erase_if(pieces, [](const std::string& piece) {
    return piece.find("<|") != std::string::npos && piece.find("|>") != std::string::npos;
  });
  return pieces;
}

// Brings the text to an end: the pieces that close, as long as it may not end.
void close(Writer& writer, const std::vector<std::string>& pieces, std::mt19937& random) {
  for (int i = 0; i < 4000 && !writer.may_end(); ++i) {
    if (!writer.write(pieces[random() % pieces.size()])) writer.write(writer.any_allowed(random));
  }
}

ParsedOutput read(const ToolFormat& format, const std::string& text, bool eager) {
  OutputParserOptions options;
  options.eager = eager;
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

TEST_CASE("a call that began parses in every format, whatever is written after its beginning") {
  FakeEngine engine(says(""));
  const auto model = fake_model(engine.queue());
  std::set<std::string> held;
  for (const std::string_view name : tool_format_names()) {
    const ToolFormat& format = *find_tool_format(name);
    const auto spec = begun_calls_spec(format, kNames, true);
    if (!spec) continue;
    held.emplace(name);
    const auto grammar = grammar_of(*model->grammar_compiler, *spec);
    const std::vector<std::string> pieces = pieces_of(format);
    std::mt19937 random(7);
    int num_whole = 0;
    for (int round = 0; round < 100; ++round) {
      Writer writer(*grammar);
      REQUIRE(writer.write("Sure, "));
      REQUIRE(writer.write(spec->triggers[random() % spec->triggers.size()]));
      for (int i = 0; i < 30; ++i)
        writer.write(pieces[random() % pieces.size()]);
      close(writer, pieces, random);
      INFO(name << ": " << writer.text());
      if (!writer.may_end()) continue;
      ++num_whole;
      const ParsedOutput parsed = read(format, writer.text(), round % 2 == 0);
      REQUIRE_FALSE(parsed.tool_calls.empty());
      for (const ParsedToolCall& call : parsed.tool_calls) {
        CHECK(std::find(kNames.begin(), kNames.end(), call.name) != kNames.end());
        const auto arguments = parse_json(without_exponents(call.arguments));
        CHECK((arguments && arguments->is_object()));
      }
    }
    INFO(name);
    CHECK(num_whole >= 20);
  }
  for (const char* const name : {"hermes", "qwen3_coder", "glm45", "minimax_m2", "deepseek_v32", "seed_oss", "kimi_k3",
                                 "gemma4", "functiongemma", "harmony"}) {
    INFO(name);
    CHECK(held.count(name) == 1);
  }
}

TEST_CASE("a call as its format writes it passes the grammar, with text before and after") {
  FakeEngine engine(says(""));
  const auto model = fake_model(engine.queue());
  const auto takes = [&](const char* format, const std::string& text, bool parallel = true) {
    INFO(format << ": " << text);
    const auto spec = begun_calls_spec(*find_tool_format(format), kNames, parallel);
    REQUIRE(spec);
    const auto grammar = grammar_of(*model->grammar_compiler, *spec);
    Writer writer(*grammar);
    return writer.write(text) && writer.may_end();
  };
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
  CHECK_FALSE(takes("gemma4", "<|tool_call>call:add{a:one}<tool_call|>"));
}

TEST_CASE("no grammar holds calls that begin as other text does") {
  for (const char* const name : {"json", "pythonic", "llama3_json", "none"}) {
    INFO(name);
    REQUIRE(find_tool_format(name) != nullptr);
    const auto spec = begun_calls_spec(*find_tool_format(name), kNames, true);
    if (spec) CHECK(spec->triggers.front().front() == '<');
  }
  CHECK_FALSE(begun_calls_spec(*find_tool_format("hermes"), {}, true));
}

}  // namespace begun_calls
