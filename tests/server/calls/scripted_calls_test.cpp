// Scripted calls of every tool format through every chat API, in every mode of tool choice and in every chunking.
#include <catch2/catch.hpp>

#include "core/text/chat_template.h"
#include "core/text/tools/call_writer.h"
#include "core/text/tools/output_parser.h"
#include "tests/server/calls/call_examples.h"
#include "tests/server/calls/scripted_answer.h"
#include "tests/server/fake_engine.h"
#include "tests/server/fake_tokenizer.h"
#include "tests/support/sanitizers.h"

using namespace quire;
using namespace quire::test;

namespace scripted_calls {

enum class Mode { kAuto, kStrict, kRequired, kNamed, kSingle };
constexpr Mode kModes[] = {Mode::kAuto, Mode::kStrict, Mode::kRequired, Mode::kNamed, Mode::kSingle};

Json schema(const char* name) {
  return std::string_view(name) == "add" ? Json::parse(kAddSchema)
                                         : Json::parse(R"({"type":"object","properties":{"path":{"type":"string"}},
                                             "required":["path"],"additionalProperties":false})");
}

Json tools(ChatApi api, Mode mode) {
  Json list = Json::array();
  for (const char* const name : {"add", "list_files"}) {
    Json function{{"name", name}, {"description", "Does it."}};
    function[api == ChatApi::kMessages ? "input_schema" : "parameters"] = schema(name);
    if (mode == Mode::kStrict) function["strict"] = true;
    if (api == ChatApi::kResponses) function["type"] = "function";
    const bool wrapped = api == ChatApi::kChat || api == ChatApi::kOllama;
    list.push_back(wrapped ? Json{{"type", "function"}, {"function", function}} : function);
  }
  return list;
}

Json choice(ChatApi api, Mode mode) {
  if (api == ChatApi::kMessages) {
    Json asked{{"type", mode == Mode::kRequired ? "any" : mode == Mode::kNamed ? "tool" : "auto"}};
    if (mode == Mode::kNamed) asked["name"] = "add";
    if (mode == Mode::kSingle) asked["disable_parallel_tool_use"] = true;
    return asked;
  }
  if (mode == Mode::kRequired) return "required";
  if (mode != Mode::kNamed) return "auto";
  return api == ChatApi::kChat ? Json{{"type", "function"}, {"function", {{"name", "add"}}}}
                               : Json{{"type", "function"}, {"name", "add"}};
}

Json request(ChatApi api, Mode mode) {
  const Json turns = Json::array({{{"role", "user"}, {"content", "Go"}}});
  Json body{{api == ChatApi::kResponses ? "input" : "messages", turns}, {"tools", tools(api, mode)}};
  if (api == ChatApi::kMessages) body["max_tokens"] = 900;
  if (api == ChatApi::kOllama) return body;
  body["tool_choice"] = choice(api, mode);
  if (mode == Mode::kSingle && api != ChatApi::kMessages) body["parallel_tool_calls"] = false;
  return body;
}

// A model that writes the format, with a prompt that ends as the format's prompts do.
std::shared_ptr<ServedModel> model_of(FakeEngine& engine, std::string_view format) {
  auto model = fake_model(engine.queue(), 32768);
  model->tool_format = *find_tool_format(format);
  const bool thinks = model->tool_format.starts_in_reasoning;
  const std::string end(thinks ? model->tool_format.think_begin : model->tool_format.prompt_start);
  const std::string source = std::string(kDefaultChatTemplate) + "{% if add_generation_prompt %}" + end + "{% endif %}";
  model->chat_template = std::make_shared<ChatTemplate>(*ChatTemplate::parse(source));
  model->template_capabilities = probe_capabilities(*model->chat_template);
  model->template_capabilities.tool_format = model->tool_format;
  return model;
}

// A model whose answers begin inside its reasoning ends that first.
std::string opened(const ToolFormat& format, const std::string& text) {
  return format.starts_in_reasoning ? "Hm." + std::string(format.think_end) + "\n" + text : text;
}

std::string as_text(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces)
    text += piece.text;
  return text;
}

const std::vector<WrittenCall>& two_calls() {
  static const std::vector<WrittenCall> kCalls = {
      {"add", Json::parse(R"({"a": 7, "b": "x < y & \"z\"\n\té", "c": {"d": [true, false]}})")},
      {"list_files", Json::parse(R"({"path": "/a b"})")}};
  return kCalls;
}

void check_heard(const HeardAnswer& heard, const std::vector<WrittenCall>& calls) {
  CHECK(heard.error == "");
  CHECK(heard.refused == "");
  REQUIRE(heard.calls.size() == calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    CHECK(heard.calls[i].name == calls[i].name);
    CHECK(heard.calls[i].arguments == nlohmann::json::parse(calls[i].arguments.dump()));
  }
  CHECK(heard.text.find_first_not_of(" \n") == std::string::npos);
  CHECK_FALSE(heard.finish.empty());
}

TEST_CASE("a scripted call comes back equal in every format, mode and chunking, from every chat API") {
  FakeEngine engine;
  constexpr std::size_t kChunkings[] = {1, 2, 3, 5, 8, 13, 100000};
  std::size_t turn = 0;
  for (const CallExample& example : call_examples()) {
    const auto model = model_of(engine, example.format);
    const std::vector<WrittenCall> expected = {{"add", Json::parse(example.arguments)}};
    for (const Mode mode : kModes) {
      for (const ChatApi api : kChatApis) {
        if (api == ChatApi::kOllama && mode != Mode::kAuto) continue;
        const Json body = request(api, mode);
        const std::string text = opened(model->tool_format, example.with("7"));
        // Each format meets each chunking; no mode and API meets all.
        for (const bool stream : {false, true}) {
          const std::size_t chunk = kChunkings[turn++ % std::size(kChunkings)];
          INFO(example.format << ", mode " << static_cast<int>(mode) << ", API " << static_cast<int>(api)
                              << (stream ? ", streamed by " : ", whole by ") << chunk);
          check_heard(answer_with(*model, api, body, text, stream, chunk), expected);
        }
      }
    }
  }
  engine.stop();
}

TEST_CASE("calls as the format's description writes them pass its grammar and are read, one and several") {
  FakeEngine engine;
  for (const std::string_view name : tool_format_names()) {
    if (name == "none") continue;
    const auto model = model_of(engine, name);
    const ToolFormat& format = model->tool_format;
    const std::string one = opened(format, as_text(write_calls(format, {two_calls()[0]})));
    const std::string both = opened(format, as_text(write_calls(format, two_calls())));
    INFO(name << ": " << both);
    for (const Mode mode : kModes) {
      INFO("mode " << static_cast<int>(mode));
      const Json body = request(ChatApi::kChat, mode);
      check_heard(answer_with(*model, ChatApi::kChat, body, one, true, 3), {two_calls()[0]});
      const HeardAnswer heard = answer_with(*model, ChatApi::kChat, body, both, true, 4);
      if (mode == Mode::kSingle || mode == Mode::kNamed) {
        CHECK_FALSE(heard.refused.empty());
      } else {
        check_heard(heard, two_calls());
      }
    }
  }
  engine.stop();
}

TEST_CASE("a call that is cut is never closed into arguments, in any format and at any place") {
  FakeEngine engine;
  for (const CallExample& example : call_examples()) {
    const auto model = model_of(engine, example.format);
    const std::string text = opened(model->tool_format, example.with("7"));
    const auto whole = nlohmann::json::parse(example.arguments);
    for (std::size_t size = 1; size < text.size(); size += kUnderThreadSanitizer ? 29 : 7) {
      INFO(example.format << ": " << text.substr(0, size));
      const HeardAnswer heard = answer_with(*model, ChatApi::kChat, request(ChatApi::kChat, Mode::kAuto),
                                            text.substr(0, size), size % 2 == 0, 5, true);
      CHECK(heard.finish == "length");
      for (const HeardCall& call : heard.calls)
        CHECK((call.arguments.is_string() || call.arguments == whole));
    }
  }
  engine.stop();
}

}  // namespace scripted_calls
