// Custom tools of chat completions, tools that come in a conversation's items and blocks, and tokens that are generated
// in a stream.
#include <catch2/catch.hpp>

#include "server/api/chat/chat.h"
#include "server/api/completions/completions.h"
#include "server/api/messages/messages.h"
#include "server/api/responses/responses.h"
#include "tests/server/calls/scripted_answer.h"
#include "tests/server/fake_engine.h"
#include "tests/server/fake_tokenizer.h"
#include "tests/server/http_client.h"

using namespace quire;
using namespace quire::test;

namespace tool_kinds {

const std::string kPatch =
    R"({"type":"custom","custom":{"name":"patch","description":"Edits","format":{"type":"grammar","grammar":)"
    R"({"syntax":"lark","definition":"start: WORD"}}}})";
const std::string kRead = R"({"type":"function","function":{"name":"read","parameters":{"type":"object"}}})";
const std::string kTools = "\"tools\":[" + kPatch + "," + kRead + "]";
const std::string kTurn = R"("messages":[{"role":"user","content":"x"}],)";

// A model that answers every request with one text, and the prompt of its last request.
class Speaker {
 public:
  explicit Speaker(std::string text) : text_(std::move(text)), model_(fake_model(engine_.queue())) {}
  ~Speaker() { engine_.stop(); }
  Speaker(const Speaker&) = delete;
  Speaker& operator=(const Speaker&) = delete;

  RawAnswer ask(Endpoint endpoint, const std::string& body) {
    RawAnswer answer = raw_answer(*model_, endpoint, body, text_);
    prompt_.clear();
    for (const TokenId token : answer.request ? answer.request->prompt : std::vector<TokenId>())
      prompt_ += ByteTokenizer().token_bytes(token);
    return answer;
  }
  Json answer(Endpoint endpoint, const std::string& body) {
    const RawAnswer answer = ask(endpoint, body);
    INFO((answer.error ? answer.error->message : ""));
    REQUIRE_FALSE(answer.error);
    return Json::parse(answer.body);
  }
  std::string refused_param(Endpoint endpoint, const std::string& body) {
    const RawAnswer answer = ask(endpoint, body);
    return answer.error ? answer.error->param : "answered";
  }
  const std::string& prompt() const { return prompt_; }

 private:
  FakeEngine engine_;
  std::string text_;
  std::string prompt_;
  std::shared_ptr<ServedModel> model_;
};

std::string calls() {
  return R"(<tool_call>
{"name": "patch", "arguments": {"input": "a\nb"}}
</tool_call>
<tool_call>
{"name": "read", "arguments": {"p": 1}}
</tool_call>)";
}

TEST_CASE("a chat's custom tool is called by a text, whole and streamed") {
  Speaker speaker(calls());
  const RawAnswer reply = speaker.ask(&parse_chat, "{" + kTurn + kTools + "}");
  REQUIRE_FALSE(reply.error);
  REQUIRE(reply.warnings.size() == 1);
  CHECK(reply.warnings[0].find("not enforced") != std::string::npos);
  CHECK(speaker.prompt().find("start: WORD") != std::string::npos);
  const Json choice = Json::parse(reply.body)["choices"][0];
  CHECK(choice["finish_reason"] == "tool_calls");
  const Json& made = choice["message"]["tool_calls"];
  REQUIRE(made.size() == 2);
  CHECK(made[0]["type"] == "custom");
  CHECK(made[0]["custom"] == Json{{"name", "patch"}, {"input", "a\nb"}});
  CHECK(made[0]["id"].get<std::string>().starts_with("call_"));
  CHECK(made[1]["type"] == "function");
  CHECK(Json::parse(made[1]["function"]["arguments"].get<std::string>()) == Json{{"p", 1}});

  std::string input;
  std::string arguments;
  const RawAnswer stream = speaker.ask(&parse_chat, "{\"stream\":true," + kTurn + kTools + "}");
  for (const std::string& data : sse_data(stream.body)) {
    if (data == "[DONE]") continue;
    for (const Json& call : Json::parse(data)["choices"][0]["delta"].value("tool_calls", Json::array())) {
      if (call["index"] == 0) CHECK(call["type"] == "custom");
      if (call.contains("custom")) input += call["custom"]["input"].get<std::string>();
      if (call.contains("function")) arguments += call["function"].value("arguments", "");
    }
  }
  CHECK(input == "a\nb");
  CHECK(Json::parse(arguments) == Json{{"p", 1}});

  Json history = Json::array({{{"role", "user"}, {"content", "x"}}, choice["message"]});
  history.push_back({{"role", "tool"}, {"tool_call_id", made[0]["id"]}, {"content", "patched"}});
  speaker.answer(&parse_chat, "{\"messages\":" + history.dump() + "," + kTools + "}");
  CHECK(speaker.prompt().find(R"({"input": "a\nb"})") != std::string::npos);
  CHECK(speaker.prompt().find("patched") != std::string::npos);
}

TEST_CASE("a chat's custom tool may be chosen, and is refused where it is malformed") {
  Speaker speaker("x");
  const auto choose = [&](const std::string& choice) {
    return "{" + kTurn + kTools + ",\"tool_choice\":" + choice + "}";
  };
  CHECK(speaker.ask(&parse_chat, choose(R"({"type":"custom","custom":{"name":"patch"}})")).request->grammar != nullptr);
  speaker.answer(&parse_chat, choose(R"({"type":"allowed_tools","allowed_tools":{"mode":"auto",
                "tools":[{"type":"custom","custom":{"name":"patch"}}]}})"));
  CHECK(speaker.refused_param(&parse_chat, choose(R"({"type":"custom","custom":{"name":"other"}})")) == "tool_choice");
  const auto tool = [&](const std::string& text) { return "{" + kTurn + "\"tools\":[" + text + "]}"; };
  CHECK(speaker.refused_param(&parse_chat, tool(R"({"type":"custom"})")) == "tools[0].custom");
  CHECK(
      speaker.refused_param(&parse_chat, tool(R"({"type":"custom","custom":{"name":"p","format":{"type":"odd"}}})")) ==
      "tools[0].custom.format.type");
}

TEST_CASE("tools in an item of a response's input are offered, the last definition of a name") {
  Speaker speaker("<tool_call>\n{\"name\": \"crew.exec\", \"arguments\": {\"input\": \"ls\"}}\n</tool_call>");
  const std::string input = R"("input":[{"type":"additional_tools","role":"developer","tools":[{"type":"namespace",
      "name":"crew","description":"d","tools":[{"type":"custom","name":"exec","description":"Runs it"}]},
      {"type":"function","name":"read","description":"newer"}]},{"role":"user","content":"x"}])";
  const std::string tools = R"("tools":[{"type":"function","name":"read","description":"older"}])";
  const RawAnswer reply = speaker.ask(&parse_response, "{" + input + "," + tools + "}");
  REQUIRE_FALSE(reply.error);
  CHECK(reply.warnings.empty());
  const Json body = Json::parse(reply.body);
  INFO(body["output"]);
  REQUIRE(body["output"][0]["type"] == "custom_tool_call");
  CHECK(body["output"][0]["input"] == "ls");
  CHECK(body["output"][0]["namespace"] == "crew");
  const std::string prompt = speaker.prompt();
  CHECK(prompt.find("newer") != std::string::npos);
  CHECK(prompt.find("older") == std::string::npos);
  CHECK(speaker.answer(&parse_response, "{" + input + "}")["output"][0]["type"] == "custom_tool_call");
  CHECK(speaker.refused_param(&parse_response, R"({"input":[{"type":"additional_tools"}]})") == "input[0].tools");
}

TEST_CASE("messages of the system add and take away Anthropic's tools") {
  Speaker speaker("x");
  const auto prompt = [&](const std::string& blocks) {
    const RawAnswer reply =
        speaker.ask(&parse_messages, R"({"max_tokens":3,"tools":[{"name":"read","input_schema":{"type":"object"}},
        {"name":"list","input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"x"},
        {"role":"system","content":[)" + blocks +
                                         "]}]}");
    CHECK_FALSE(reply.error);
    CHECK(reply.warnings.empty());
    return speaker.prompt();
  };
  const std::string remove = R"({"type":"tool_removal","tool":{"type":"tool_reference","name":"read"}})";
  const std::string again = R"({"type":"tool_addition","tool":{"type":"tool_reference","name":"read"}})";
  const std::string define = R"({"type":"tool_addition","tool":{"type":"tool_definition",
      "definition":{"name":"write","input_schema":{"type":"object"}}}})";
  const auto has = [](const std::string& text, const char* name) {
    return text.find("\"name\":\"" + std::string(name)) != std::string::npos;
  };
  CHECK_FALSE(has(prompt(remove), "read"));
  CHECK(has(prompt(remove), "list"));
  CHECK(has(prompt(remove + "," + again), "read"));
  CHECK(has(prompt(define), "write"));
  CHECK(has(prompt(define), "read"));
  CHECK(speaker.refused_param(&parse_messages, R"({"max_tokens":3,"messages":[{"role":"system","content":[)" + define +
                                                   "]}]}") == "messages");
}

TEST_CASE("tokens are generated in a stream, with log probabilities as chats have them") {
  Speaker speaker("ok");
  const std::string request = R"("token_ids":[97],"request_id":"r1","sampling_params":{"max_tokens":3,"logprobs":1})";
  const Json whole = speaker.answer(&parse_token_generation, "{" + request + "}");
  const Json& choice = whole["choices"][0];
  REQUIRE(choice["logprobs"]["content"].size() == 2);
  CHECK(choice["logprobs"]["content"][0]["token"] == "o");
  CHECK(choice["logprobs"]["content"][0]["top_logprobs"].size() == 1);
  Json tokens = Json::array();
  std::string finish;
  Json usage;
  const std::string options = R"("stream":true,"stream_options":{"include_usage":true},)";
  const RawAnswer reply = speaker.ask(&parse_token_generation, "{" + options + request + "}");
  REQUIRE_FALSE(reply.error);
  const std::vector<std::string> events = sse_data(reply.body);
  for (const std::string& data : events) {
    if (data == "[DONE]") continue;
    const Json event = Json::parse(data);
    CHECK(event["request_id"] == "r1");
    if (!event["usage"].is_null()) usage = event["usage"];
    for (const Json& each : event["choices"]) {
      tokens.insert(tokens.end(), each["token_ids"].begin(), each["token_ids"].end());
      if (each["finish_reason"].is_string()) finish = each["finish_reason"];
    }
  }
  CHECK(events.back() == "[DONE]");
  CHECK(tokens == choice["token_ids"]);
  CHECK(choice["finish_reason"] == finish);
  CHECK(usage["completion_tokens"] == whole["usage"]["completion_tokens"]);
  const Json prompt = speaker.answer(&parse_token_generation,
                                     R"({"token_ids":[97,98],"sampling_params":{"max_tokens":1,"prompt_logprobs":0}})");
  CHECK(prompt["prompt_logprobs"].size() == 2);
  CHECK(speaker.refused_param(&parse_token_generation,
                              R"({"token_ids":[97],"stream":true,"sampling_params":{"prompt_logprobs":0}})") ==
        "sampling_params.prompt_logprobs");
}

}  // namespace tool_kinds
