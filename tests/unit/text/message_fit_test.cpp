// Conversations that clients send, fitted to every template of the material: each text of them must arrive.
#include "core/text/message_fit.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/support/material.h"

namespace quire {
namespace {

Json message(const char* role, const char* text) {
  return {{"role", role}, {"content", text}};
}

Json call(const char* id, const char* arguments) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", "look"}, {"arguments", arguments}}}};
}

Json calls(const Json& list, const char* text = "") {
  Json answer = message("assistant", text);
  answer["tool_calls"] = list;
  return answer;
}

Json result(const char* text, const char* id) {
  return {{"role", "tool"}, {"content", text}, {"tool_call_id", id}};
}

Json tools() {
  return Json::parse(R"([{"type":"function","function":{"name":"look","description":"W0",
    "parameters":{"type":"object","properties":{"place":{"type":"string"}}}}}])");
}

struct Conversation {
  const char* name;
  Json messages;
  int num_words;  // the words W1, W2, ... that its texts are
  bool has_tools = false;
};

const std::vector<Conversation>& conversations() {
  static const Json kCall = Json::array({call("call_1", R"({"place": "W2"})")});
  static const Json kEmpty = Json::array({call("call_1", "null")});
  static const Json kCut = Json::array({call("call_1", R"({"place": )")});
  static const Json kTwo = Json::array({call("c1", R"({"place": "W2"})"), call("c2", R"({"place": "W3"})")});
  static const Json kNext = Json::array({call("call_2", R"({"place": "W4"})")});
  static const Json kUser = message("user", "W1");
  static const std::vector<Conversation> kAll = {
      {"system last", {kUser, message("system", "W2")}, 2},
      {"developer last", {kUser, message("developer", "W2")}, 2},
      {"system between turns",
       {message("system", "W2"), kUser, message("assistant", "W3"), message("system", "W4"), message("user", "W5")},
       5},
      {"two systems", {message("system", "W2"), message("system", "W3"), kUser}, 3},
      {"system and developer", {message("system", "W2"), message("developer", "W3"), kUser}, 3},
      {"system behind a result",
       {message("system", "W3"), kUser, calls(kCall), result("W4", "call_1"), message("system", "W5")},
       5,
       true},
      {"history with calls",
       {kUser, calls(kCall, "W3"), result("W4", "call_1"), message("assistant", "W5"), message("user", "W6")},
       6,
       true},
      {"two rounds of calls",
       {message("system", "W6"), kUser, calls(kCall), result("W3", "call_1"), calls(kNext, "W5"),
        result("W7", "call_2")},
       7,
       true},
      {"parallel calls", {kUser, calls(kTwo), result("W4", "c1"), result("W5", "c2")}, 5, true},
      {"null arguments", {kUser, calls(kEmpty), result("W2", "call_1"), message("user", "W3")}, 3, true},
      {"arguments that were cut", {kUser, calls(kCut), result("W2", "call_1"), message("user", "W3")}, 3, true},
      {"result and text of one turn",
       {kUser, calls(kCall), result("W3", "call_1"), message("user", "W4"), message("assistant", "W5"),
        message("user", "W6")},
       6,
       true},
      {"repeated turns",
       {kUser, message("user", "W2"), message("assistant", "W3"), message("assistant", "W4"), message("user", "W5")},
       5},
      {"an answer first", {message("assistant", "W2"), kUser}, 2},
      {"an answer behind the system", {message("system", "W2"), message("assistant", "W3"), kUser}, 3},
      {"no user", {message("system", "W1")}, 1},
      {"no user, with tools", {message("system", "W1"), message("developer", "W2")}, 2, true},
      {"an answer last", {message("system", "W2"), kUser, message("assistant", "W3")}, 3, true},
      {"an empty answer", {kUser, message("assistant", ""), message("user", "W2")}, 2},
      {"a user between a call and its result",
       {kUser, calls(kCall), message("user", "W3"), result("W4", "call_1"), message("assistant", "W5")},
       5,
       true},
      {"a result without its call", {result("W2", "call_1"), kUser}, 2, true},
      {"a result behind an answer", {kUser, message("assistant", "W2"), result("W3", "call_1")}, 3, true},
  };
  return kAll;
}

std::string rendered(const ChatTemplate& chat_template, const FittedMessages& fitted, const ToolFormat& format) {
  Json context{
      {"messages", fitted.messages}, {"add_generation_prompt", true}, {"bos_token", "<s>"}, {"eos_token", "</s>"}};
  if (!fitted.tools.is_null()) context["tools"] = filled_tools(fitted.tools);
  add_format_variables(context, format);
  const auto pieces = chat_template.render(context);
  if (!pieces) return pieces.error().message;
  std::string text;
  for (const auto& piece : with_inserts(*pieces, fitted.inserts))
    text += piece.text;
  return text;
}

TEST_CASE("every conversation arrives whole through every template") {
  QUIRE_REQUIRE_MATERIAL(folder, "chat-templates/templates");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    const auto chat_template = ChatTemplate::parse(test::read_file(entry.path()), {.changes_values = true});
    REQUIRE(chat_template.has_value());
    const TemplateCapabilities capabilities = probe_capabilities(*chat_template);
    for (const Conversation& each : conversations()) {
      const auto fitted = fit_messages(each.messages, each.has_tools ? tools() : Json(), capabilities);
      REQUIRE(fitted.has_value());
      const std::string prompt = rendered(*chat_template, *fitted, capabilities.tool_format);
      INFO(name << ", " << each.name << ": " << prompt);
      for (int word = each.has_tools ? 0 : 1; word <= each.num_words; ++word)
        CHECK(prompt.find("W" + std::to_string(word)) != std::string::npos);
    }
  }
}

TEST_CASE("a call of the history is shown as the model wrote it") {
  QUIRE_REQUIRE_MATERIAL(folder, "chat-templates/templates");
  const Json history = {message("user", "W1"),
                        calls(Json::array({call("abcDEF123", R"({"place": "x", "n": [1, 2]})")})),
                        result("W2", "abcDEF123")};
  const auto shown = [&](const char* name, const Json& messages) {
    const auto chat_template = ChatTemplate::parse(test::read_file(folder / (std::string(name) + ".jinja")));
    REQUIRE(chat_template.has_value());
    const TemplateCapabilities capabilities = probe_capabilities(*chat_template);
    const auto fitted = fit_messages(messages, tools(), capabilities);
    REQUIRE(fitted.has_value());
    CHECK(fitted->warnings.empty());
    return rendered(*chat_template, *fitted, capabilities.tool_format);
  };
  CHECK_THAT(shown("google-gemma-4-31B-it", history), Catch::Contains("call:look{n:[1,2],place:<|\"|>x<|\"|>}"));
  for (const char* name : {"Qwen-Qwen3-0.6B", "mistralai-Ministral-3-14B-Reasoning-2512",
                           "meetkai-functionary-medium-v3.2", "mistralai-Mistral-Nemo-Instruct-2407"})
    CHECK_THAT(shown(name, history), Catch::Contains(R"({"place": "x", "n": [1, 2]})"));
  Json long_number = history;
  const std::string digits = "-" + std::string(70, '7');
  long_number[1]["tool_calls"][0]["function"]["arguments"] = R"({"wei": )" + digits + "}";
  CHECK_THAT(shown("Qwen-Qwen3-0.6B", long_number), Catch::Contains(R"({"wei": )" + digits + "}"));
}

TEST_CASE("calls that a template does not show have their format's form, with marks that are trusted") {
  TemplateCapabilities capabilities;
  capabilities.system_role = true;
  capabilities.tool_format = *find_tool_format("lfm2");
  const Json history = {message("user", "QuireWritesCall"),
                        calls(Json::array({call("1", R"({"place": "<|im_end|>"})")}), "W1")};
  const auto fitted = fit_messages(history, Json(), capabilities);
  REQUIRE(fitted.has_value());
  REQUIRE(fitted->inserts.size() == 1);
  CHECK(fitted->messages[0] == history[0]);
  const auto pieces =
      with_inserts({{"A" + fitted->messages[1]["content"].get<std::string>() + "Z", false}}, fitted->inserts);
  std::string text;
  for (const auto& piece : pieces)
    text += piece.trusted ? "{" + piece.text + "}" : piece.text;
  CHECK(text == "AW1\n\n{<|tool_call_start|>}[look(place=\"<|im_end|>\")]{<|tool_call_end|>}Z");
}

TEST_CASE("tools for templates that insist on more than a tool has") {
  const Json tool =
      Json::parse(R"([{"type":"function","function":{"name":"f","description":null,"parameters":{"properties":{
    "a":{"type":["null","integer"],"description":"A","enum":[1]},"b":{"$ref":"#/$defs/B"},"c":{"type":"array"}},
    "required":["b"],"$defs":{"B":{"type":"object","properties":{"d":{"anyOf":[{"type":"boolean"}]}}}}}}},
    {"type":"function","function":{"name":"g"}}])");
  const Json filled = filled_tools(tool);
  CHECK(filled[0]["function"]["description"] == "");
  CHECK(filled[0]["function"]["parameters"]["properties"]["b"] == Json{{"$ref", "#/$defs/B"}, {"description", ""}});
  CHECK(filled[1]["function"]["parameters"] == Json{{"type", "object"}, {"properties", Json::object()}});
  const Json plain = plain_tools(tool);
  const Json& properties = plain[0]["function"]["parameters"]["properties"];
  CHECK(properties["a"] == Json{{"type", "integer"}, {"description", "A"}, {"enum", {1}}});
  CHECK(properties["b"]["properties"]["d"]["type"] == "boolean");
  CHECK(properties["c"]["items"]["type"] == "string");
  CHECK(plain[0]["function"]["parameters"]["required"] == Json{"b"});
  CHECK(plain[1]["function"]["name"] == "g");
}

TEST_CASE("ids of nine letters are mapped, the same for a call and its result") {
  TemplateCapabilities capabilities;
  capabilities.system_role = capabilities.tools = capabilities.tool_calls = capabilities.tool_results = true;
  capabilities.parallel_calls = capabilities.object_arguments = capabilities.nine_letter_ids = true;
  capabilities.answer_first = capabilities.without_user = true;
  const Json history = {calls(Json::array({call("toolu_1", "{}"), call("abcDEF123", "{}")})), result("a", "toolu_1"),
                        result("b", "abcDEF123")};
  const auto fitted = fit_messages(history, Json(), capabilities);
  REQUIRE(fitted.has_value());
  const std::string id = fitted->messages[0]["tool_calls"][0]["id"];
  CHECK(id == nine_letter_id("toolu_1"));
  CHECK(id.size() == 9);
  CHECK(fitted->messages[1]["tool_call_id"] == id);
  CHECK(fitted->messages[0]["tool_calls"][1]["id"] == "abcDEF123");
  CHECK(fitted->messages[2]["tool_call_id"] == "abcDEF123");
}

TEST_CASE("what is folded or replaced is a warning") {
  TemplateCapabilities capabilities;
  capabilities.tool_calls = capabilities.object_arguments = capabilities.text_beside_calls = true;
  const Json history = {message("system", "S"), message("user", "A"), message("user", "B"),
                        calls(Json::array({call("1", "[1]")})), result("R", "1")};
  const auto fitted = fit_messages(history, Json(), capabilities);
  REQUIRE(fitted.has_value());
  CHECK(fitted->messages[0] == message("user", "S\n\nA\n\nB"));
  CHECK(fitted->messages[1]["tool_calls"][0]["function"]["arguments"] == Json::object());
  CHECK(fitted->messages[2] == message("user", "Result of look:\nR"));
  REQUIRE(fitted->warnings.size() == 4);
  CHECK_THAT(fitted->warnings[0], Catch::Contains("1 system message(s) folded"));
  CHECK_THAT(fitted->warnings[1], Catch::Contains("1 message(s) merged"));
  CHECK_THAT(fitted->warnings[2], Catch::Contains("1 message(s) with calls or results"));
  CHECK_THAT(fitted->warnings[3], Catch::Contains("'look'"));
}

TEST_CASE("messages are fitted to what the template takes") {
  TemplateCapabilities plain;
  plain.system_role = plain.tool_calls = true;
  const Json messages = Json::parse(R"([
    {"role": "developer", "content": "Be terse."},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{\"x\":1}"}}]}])");
  auto fitted = fit_messages(messages, Json(), plain);
  REQUIRE(fitted.has_value());
  CHECK(fitted->messages[0]["role"] == "system");
  CHECK(fitted->messages[1]["content"] == "ab");
  CHECK(fitted->messages[2]["content"] == "");
  CHECK(fitted->messages[2]["tool_calls"][0]["function"]["arguments"] == "{\"x\":1}");

  TemplateCapabilities rich;
  rich.string_content = false;
  rich.parts_content = true;
  rich.null_content = true;
  rich.developer_role = true;
  rich.system_role = true;
  rich.object_arguments = rich.tool_calls = true;
  fitted = fit_messages(messages, Json(), rich);
  REQUIRE(fitted.has_value());
  CHECK(fitted->messages[0]["role"] == "developer");
  CHECK(fitted->messages[0]["content"] == Json::parse(R"([{"type": "text", "text": "Be terse."}])"));
  CHECK(fitted->messages[2]["content"].is_null());
  CHECK(fitted->messages[2]["tool_calls"][0]["function"]["arguments"] == Json{{"x", 1}});
}

TEST_CASE("without a system role its text goes before the first user message") {
  const Json messages = Json::parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}])");
  const auto fitted = fit_messages(messages, Json(), TemplateCapabilities{});
  REQUIRE(fitted.has_value());
  CHECK(fitted->messages == Json::parse(R"([{"role": "user", "content": "S\n\nU"}])"));
}

TEST_CASE("parts that are not text are refused by name where the template takes text only") {
  const Json messages =
      Json::parse(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])");
  const auto fitted = fit_messages(messages, Json(), TemplateCapabilities{});
  REQUIRE_FALSE(fitted.has_value());
  CHECK(fitted.error().param == "messages[0].content");
  CHECK(fitted.error().message.find("image_url") != std::string::npos);
}

// Work that grows with the square of a history's length takes many minutes at this one.
TEST_CASE("histories of very many messages are fitted in one go") {
  constexpr int kMany = 40'000;
  TemplateCapabilities rich;
  rich.system_role = rich.several_systems = rich.later_system = rich.last_system = rich.repeated_turns = true;
  rich.tool_calls = rich.tool_results = rich.parallel_calls = rich.text_beside_calls = true;
  rich.answer_first = rich.without_user = true;
  Json many_calls = Json::array();
  Json open_calls = Json::array();
  Json results = Json::array();
  Json instructions = Json::array();
  Json questions = Json::array();
  for (int i = 0; i < kMany; ++i) {
    const std::string id = std::to_string(i);
    many_calls.push_back(call(id.c_str(), "{}"));
    open_calls.push_back(calls(Json::array({many_calls.back()})));
    results.push_back(result("r", id.c_str()));
    instructions.push_back(message("system", "s"));
    questions.push_back(message("user", "q"));
  }
  SECTION("calls without results, shown and as text") {
    CHECK(fit_messages(open_calls, Json(), rich)->messages.size() == kMany);
    rich.tool_calls = false;
    const auto fitted = fit_messages(open_calls, Json(), rich);
    const auto pieces = with_inserts({{dump_json(fitted->messages), false}}, fitted->inserts);
    CHECK(fitted->inserts.size() == kMany);
    CHECK(pieces.size() > kMany);
  }
  SECTION("one message of calls, whose results are in another order") {
    Json messages = Json::array({calls(many_calls)});
    for (int i = kMany; i-- > 0;)
      messages.push_back(results[static_cast<std::size_t>(i)]);
    rich.parallel_calls = false;
    const auto fitted = fit_messages(messages, Json(), rich);
    REQUIRE(fitted->messages.size() == 2 * kMany);
    CHECK(fitted->messages[0]["tool_calls"][0]["id"] == fitted->messages[1]["tool_call_id"]);
  }
  SECTION("results without calls") {
    CHECK(fit_messages(results, Json(), rich)->messages.size() < kMany);
  }
  SECTION("instructions, and answers behind them") {
    CHECK(fit_messages(instructions, Json(), rich)->messages.size() >= kMany);
    instructions.insert(instructions.end(), open_calls.begin(), open_calls.end());
    CHECK(fit_messages(instructions, Json(), rich)->messages.size() >= 2 * kMany);
  }
  SECTION("questions that are merged") {
    rich.repeated_turns = false;
    const auto fitted = fit_messages(questions, Json(), rich);
    REQUIRE(fitted->messages.size() == 1);
    CHECK(fitted->messages[0]["content"].get_ref<const std::string&>().size() == 3 * kMany - 2);
  }
}

}  // namespace
}  // namespace quire
