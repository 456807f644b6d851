// A call in the history, as each template of the material or the description of its format shows it: the same that the
// reader finds in an answer and that the grammar lets pass; and conversations of all kinds, through the API's own
// layer.
#include <catch2/catch.hpp>
#include <set>

#include "core/grammar/compiler.h"
#include "core/text/chat_template.h"
#include "core/text/chat_template_capabilities.h"
#include "core/text/tools/output_parser.h"
#include "server/api/conversation/call_grammar.h"
#include "server/api/conversation/chat_prompt.h"
#include "tests/server/calls/byte_compiler.h"
#include "tests/server/calls/grammar_writer.h"
#include "tests/server/fake_engine.h"
#include "tests/support/material.h"

using namespace quire;
using namespace quire::test;

namespace template_calls {

std::vector<std::filesystem::path> template_paths(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    paths.push_back(entry.path());
  return paths;
}

void use_template(ServedModel& model, const std::filesystem::path& path) {
  model.chat_template = std::make_shared<ChatTemplate>(*ChatTemplate::parse(read_file(path), {.changes_values = true}));
  model.template_capabilities = probe_capabilities(*model.chat_template);
  model.tool_format = model.template_capabilities.tool_format;
}

const Json& parameters() {
  static const Json kParameters = Json::parse(R"({"type":"object","properties":{
    "place":{"type":"string","description":"p"},"n":{"type":"array","items":{"type":"integer"},"description":"n"},
    "deep":{"type":"object","description":"d","properties":{"x":{"type":"boolean"}},"required":["x"],
    "additionalProperties":false}},"required":["place"],"additionalProperties":false})");
  return kParameters;
}

Json tools() {
  return Json::array({{{"type", "function"},
                       {"function", {{"name", "look"}, {"description", "It looks."}, {"parameters", parameters()}}}}});
}

struct Rendered {
  std::string text;  // empty: it was refused
  std::string error;
  std::vector<std::string> warnings;
};

Rendered rendered(const ServedModel& model, const Json& messages, bool prompt, const Json& offered = tools(),
                  const Json& kwargs = Json::object()) {
  ChatPromptFields fields;
  fields.messages = messages;
  fields.tools = offered;
  fields.template_kwargs = kwargs;
  fields.add_generation_prompt = prompt;
  const Json none = Json::object();
  FieldReader reader(none);
  const auto pieces = render_chat(reader, model, fields);
  if (!pieces) return {"", reader.error() ? reader.error()->message : "no error", {}};
  Rendered out;
  for (const TextPiece& piece : *pieces)
    out.text += piece.text;
  out.warnings = reader.take_warnings();
  return out;
}

Json call_message(const Json& arguments, const char* id = "call_1") {
  const Json function = {{"name", "look"}, {"arguments", dump_json(arguments)}};
  return {{"role", "assistant"},
          {"content", nullptr},
          {"tool_calls", Json::array({{{"id", id}, {"type", "function"}, {"function", function}}})}};
}

// A turn's calls in the rendered template: from the format's first mark, or from the text after the prompt, to the
// turn's end.
std::string shown_calls(const ToolFormat& format, const std::string& history, std::size_t turn) {
  static const char* const kEnds[] = {"<|im_end|>",
                                      "</s>",
                                      "<|eot_id|>",
                                      "<end_of_turn>",
                                      "<|end_of_text|>",
                                      "<|eom_id|>",
                                      "<sep>",
                                      "<seed:eos>",
                                      "<｜end▁of▁sentence｜>",
                                      "<turn|>",
                                      "<|END_OF_TURN_TOKEN|>",
                                      "<|end|>",
                                      "<|tool_response>",
                                      "<|START_OF_TURN_TOKEN|>"};
  std::string text = history.substr(turn);
  std::size_t begin = std::string::npos;
  for (const std::string_view start : format.starts)
    begin = std::min(begin, text.find(start));
  if (begin != std::string::npos && !format.bare_at_begin) text.erase(0, begin);
  for (const char* const end : kEnds)
    text = text.substr(0, text.find(end));
  return text;
}

TEST_CASE("a call of the history is what the reader finds and the grammar lets pass, through every template") {
  QUIRE_REQUIRE_MATERIAL(folder, "chat-templates/templates");
  FakeEngine engine;
  const GrammarCompiler compiler = byte_compiler();
  const auto model = fake_model(engine.queue());
  const Json arguments = Json::parse(R"({"place":"a < b, \"c\" & it's\nd","n":[1,-2],"deep":{"x":true}})");
  const Json user = {{"role", "user"}, {"content", "Go"}};
  for (const auto& path : template_paths(folder)) {
    use_template(*model, path);
    const ToolFormat& format = model->tool_format;
    const Rendered prompt = rendered(*model, Json::array({user}), true);
    const Rendered history = rendered(*model, Json::array({user, call_message(arguments)}), false);
    INFO(path.stem().string() << " [" << format.name << "] " << prompt.error << history.error);
    REQUIRE_FALSE(prompt.text.empty());
    REQUIRE_FALSE(history.text.empty());
    std::size_t turn = 0;
    while (turn < prompt.text.size() && turn < history.text.size() && prompt.text[turn] == history.text[turn])
      ++turn;
    const std::size_t begin = prompt.text.size() == turn ? turn : prompt.text.rfind("Go") + 2;
    const std::string shown = shown_calls(format, history.text, begin);
    INFO(shown);
    OutputParser parser(format, read_tool_specs(tools()), {});
    ParsedOutput parsed;
    parsed.apply(parser.push(shown));
    parsed.apply(parser.finish());
    REQUIRE(parsed.tool_calls.size() == 1);
    CHECK(parsed.tool_calls[0].name == "look");
    CHECK(nlohmann::json::parse(parsed.tool_calls[0].arguments) == nlohmann::json::parse(arguments.dump()));
    for (const bool strict : {false, true}) {
      // Seed-OSS's template prints objects as Python does; a strict call has them as JSON.
      if (strict && format.name == "seed_oss") continue;
      const CalledTool look{"look", strict ? dump_json(parameters()) : "", strict};
      const auto spec = call_grammar_spec(format, {look}, true);
      REQUIRE(spec);
      const auto grammar = compiler.compile(*spec);
      REQUIRE(grammar);
      GrammarWriter writer(**grammar);
      CHECK((writer.write(shown) && writer.may_end()));
    }
  }
  engine.stop();
}

TEST_CASE("tools as clients describe them are shown by every template that takes tools") {
  QUIRE_REQUIRE_MATERIAL(folder, "chat-templates/templates");
  FakeEngine engine;
  const auto model = fake_model(engine.queue());
  const char* const functions[] = {
      R"({"name":"look"})",
      R"({"name":"look","description":"d"})",
      R"({"name":"look","parameters":{}})",
      R"({"name":"look","description":null,"parameters":null})",
      R"({"name":"look","parameters":{"type":"object"}})",
      R"({"name":"look","parameters":{"type":"object","properties":{"a":{},"b":true}}})",
      R"({"name":"look","parameters":{"type":"object","properties":{"a":{"type":["string","null"],"description":"e"},
          "b":{"type":"array","items":{"type":["object","string"]}}}}})",
      R"({"name":"look","parameters":{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}],
          "default":null},"b":{"$ref":"#/$defs/X"},"c":{"type":"array"},"e":{"enum":["x",1,null]},"f":{"type":"object"},
          "g":{"const":1}},"$defs":{"X":{"type":"object","properties":{"y":{"$ref":"#/$defs/X"}}}}}})",
      R"({"name":"look","parameters":{"anyOf":[{"type":"object","properties":{"a":{"type":"string"}}}]}})"};
  for (const auto& path : template_paths(folder)) {
    use_template(*model, path);
    for (const char* const function : functions) {
      const Json offered = Json::array({{{"type", "function"}, {"function", Json::parse(function)}}});
      const Json user = {{"role", "user"}, {"content", "Go"}};
      const Rendered prompt = rendered(*model, Json::array({user}), true, offered);
      INFO(path.stem().string() << ": " << function << " " << prompt.error);
      CHECK(prompt.text.find("look") != std::string::npos);
    }
  }
  engine.stop();
}

TEST_CASE("conversations with results and prefills are shown whole, with thinking on and off") {
  QUIRE_REQUIRE_MATERIAL(folder, "chat-templates/templates");
  FakeEngine engine;
  const auto model = fake_model(engine.queue());
  const Json history = {
      {{"role", "system"}, {"content", "W1"}}, {{"role", "user"}, {"content", "W2"}},
      call_message({{"place", "W3"}}),         {{"role", "tool"}, {"tool_call_id", "call_1"}, {"content", "W4"}},
      {{"role", "user"}, {"content", "W5"}},   {{"role", "system"}, {"content", "W6"}}};
  for (const auto& path : template_paths(folder)) {
    use_template(*model, path);
    for (const bool thinks : {false, true}) {
      const Rendered prompt = rendered(*model, history, true, tools(), {{"enable_thinking", thinks}});
      INFO(path.stem().string() << ": " << prompt.error << prompt.text);
      for (const char* const word : {"W1", "W2", "W3", "W4", "W5", "W6", "look"})
        CHECK(prompt.text.find(word) != std::string::npos);
    }
  }
  engine.stop();
}

TEST_CASE("an agent's second prompt begins as its first, so that it comes from the cache") {
  QUIRE_REQUIRE_MATERIAL(folder, "chat-templates/templates");
  FakeEngine engine;
  const auto model = fake_model(engine.queue());
  std::string rules;
  for (int i = 0; i < 300; ++i)
    rules += "Rule " + std::to_string(i) + ": look before you leap.\n";
  const Json system = {{"role", "system"}, {"content", rules}};
  const Json result = {{"role", "tool"}, {"tool_call_id", "call_1"}, {"content", "seen"}};
  const Json wish = Json::array({system, Json{{"role", "user"}, {"content", "Go"}}});
  for (const auto& path : template_paths(folder)) {
    use_template(*model, path);
    // It puts its instructions behind the conversation.
    if (path.stem() == "CohereForAI-c4ai-command-r-plus-tool_use") continue;
    Json next = wish;
    next.push_back(call_message({{"place", "x"}}));
    next.push_back(result);
    const std::string prompt = rendered(*model, wish, true).text;
    const std::string second = rendered(*model, next, true).text;
    std::size_t same = 0;
    while (same < second.size() && same < prompt.size() && second[same] == prompt[same])
      ++same;
    INFO(path.stem().string() << ": " << same << " of " << prompt.size() << " and " << second.size());
    CHECK(static_cast<double>(same) >= 0.95 * static_cast<double>(second.size()));
  }
  engine.stop();
}

}  // namespace template_calls
