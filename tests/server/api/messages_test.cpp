#include <catch2/catch.hpp>

#include "server/api/common/json.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

std::string field_of(const HttpReply& reply, const std::string& name) {
  const auto found = reply.fields.find(name);
  return found == reply.fields.end() ? "" : found->second;
}

// A body with one question; `extra` adds members.
std::string body_of(const Json& extra = Json::object()) {
  Json body{{"model", "fake"}, {"max_tokens", 100}};
  body["messages"] = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  body.update(extra);
  return dump_json(body);
}

Json tool(const char* name) {
  return Json{{"name", name},
              {"description", "d"},
              {"input_schema", {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}}}};
}

// The events of a stream: {event, data}; checks that each names itself.
std::vector<Json> message_events(const HttpReply& reply) {
  std::vector<Json> events;
  std::size_t at = 0;
  while ((at = reply.body.find("event: ", at)) != std::string::npos) {
    const std::size_t line = reply.body.find('\n', at);
    const std::string name = reply.body.substr(at + 7, line - at - 7);
    const std::size_t end = reply.body.find("\n\n", line);
    REQUIRE(reply.body.substr(line + 1, 6) == "data: ");
    events.push_back(Json::parse(reply.body.substr(line + 7, end - line - 7)));
    CHECK(events.back()["type"] == name);
    at = end;
  }
  return events;
}

// A message put together from its events, as Anthropic's clients do it.
Json message_of(const std::vector<Json>& events) {
  Json message;
  std::string input;
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (type == "message_start") message = event["message"];
    if (type == "content_block_start") {
      CHECK(event["index"] == message["content"].size());
      message["content"].push_back(event["content_block"]);
      input.clear();
    }
    if (type == "content_block_delta") {
      CHECK(event["index"] == message["content"].size() - 1);
      Json& block = message["content"].back();
      for (const char* member : {"text", "thinking", "signature"}) {
        if (event["delta"].contains(member))
          block[member] = block[member].get<std::string>() + event["delta"][member].get<std::string>();
      }
      input += event["delta"].value("partial_json", "");
    }
    if (type == "content_block_stop" && !input.empty()) message["content"].back()["input"] = Json::parse(input);
    if (type == "message_delta") {
      message.update(event["delta"]);
      message["usage"].update(event["usage"]);
    }
  }
  return message;
}

}  // namespace

TEST_CASE("a message is answered in Anthropic's shape") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  const HttpReply reply = client.post("/v1/messages", body_of({{"system", "Be kind."}}));
  REQUIRE(reply.status == 200);
  const Json body = Json::parse(reply.body);
  CHECK(body["type"] == "message");
  CHECK(body["role"] == "assistant");
  CHECK(body["model"] == "fake");
  CHECK(body["content"] == Json::array({{{"type", "text"}, {"text", "Hello."}, {"citations", nullptr}}}));
  CHECK(body["stop_reason"] == "end_turn");
  CHECK(body["stop_sequence"].is_null());
  CHECK(body["usage"]["input_tokens"] == server.engine().last_request()->prompt.size());
  CHECK(body["usage"]["cache_read_input_tokens"] == 0);
  CHECK(body["usage"]["output_tokens"] == 7);
  CHECK(prompt_text(server) ==
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("a streamed message has the same content, reason and usage as a whole one") {
  const char* const texts[] = {
      "Hello.", "  spaced", "<think>why</think>\n\nbecause",
      ("Two:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n"
       "</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 2}}\n</tool_call>")};
  for (const char* text : texts) {
    INFO(text);
    TestServer server(says(text));
    HttpClient client(server.port());
    Json extra{{"tools", Json::array({tool("f")})}};
    Json whole = Json::parse(client.post("/v1/messages", body_of(extra)).body);
    extra["stream"] = true;
    const auto events = message_events(client.post("/v1/messages", body_of(extra)));
    REQUIRE(events.size() > 4);
    CHECK(events[0]["type"] == "message_start");
    CHECK(events[1]["type"] == "ping");
    CHECK(events.back()["type"] == "message_stop");
    Json streamed = message_of(events);
    for (Json* message : {&whole, &streamed}) {
      message->erase("id");
      for (Json& block : (*message)["content"])
        block.erase("id");
    }
    CHECK(streamed == whole);
  }
}

TEST_CASE("tool calls come as tool_use blocks") {
  TestServer server(says("Two:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"));
  HttpClient client(server.port());
  const Json body = Json::parse(client.post("/v1/messages", body_of({{"tools", Json::array({tool("f")})}})).body);
  REQUIRE(body["content"].size() == 2);
  CHECK(body["content"][0]["type"] == "text");
  CHECK(body["content"][1]["type"] == "tool_use");
  CHECK(body["content"][1]["name"] == "f");
  CHECK(body["content"][1]["input"] == Json{{"a", 1}});
  CHECK_FALSE(body["content"][1]["id"].get<std::string>().empty());
  CHECK(body["stop_reason"] == "tool_use");
}

TEST_CASE("reasoning comes as a thinking block, left empty where it is to be omitted") {
  TestServer server(says("<think>why</think>because"), test_options(), let_think);
  HttpClient client(server.port());
  Json extra{{"tools", Json::array({tool("f")})}, {"thinking", {{"type", "adaptive"}}}};
  Json body = Json::parse(client.post("/v1/messages", body_of(extra)).body);
  REQUIRE(body["content"].size() == 2);
  CHECK(body["content"][0]["thinking"] == "why");
  CHECK(body["usage"]["output_tokens_details"]["thinking_tokens"] > 3);
  CHECK_FALSE(body["content"][0]["signature"].get<std::string>().empty());
  CHECK(body["content"][1]["text"] == "because");
  extra["thinking"]["display"] = "omitted";
  body = Json::parse(client.post("/v1/messages", body_of(extra)).body);
  CHECK(body["content"][0]["thinking"] == "");
  // The model does not think unless asked to.
  client.post("/v1/messages", body_of());
  CHECK(prompt_text(server).find("</think>") != std::string::npos);
}

TEST_CASE("stop sequences and limits name themselves") {
  TestServer server(says("one two three"));
  HttpClient client(server.port());
  Json body = Json::parse(client.post("/v1/messages", body_of({{"stop_sequences", {" two"}}})).body);
  CHECK(body["stop_reason"] == "stop_sequence");
  CHECK(body["stop_sequence"] == " two");
  CHECK(body["content"][0]["text"] == "one");
  body = Json::parse(client.post("/v1/messages", body_of({{"max_tokens", 3}})).body);
  CHECK(body["stop_reason"] == "max_tokens");
  CHECK(body["usage"]["output_tokens"] == 3);
  Json wide{{"max_tokens", 5000}};
  wide["messages"] = Json::array({{{"role", "user"}, {"content", std::string(2020, 'x')}}});
  body = Json::parse(client.post("/v1/messages", body_of(wide)).body);
  CHECK(body["stop_reason"] == "model_context_window_exceeded");
}

TEST_CASE("a history of calls and results reaches the template as OpenAI's would") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const auto prompt_of = [&](const std::string& path, const std::string& body) {
    REQUIRE(client.post(path, body).status == 200);
    return prompt_text(server);
  };
  Json extra{{"tools", Json::array({tool("f")})}};
  extra["messages"] = Json::parse(R"([
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}]},
    {"role":"assistant","content":[{"type":"text","text":"c"},{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"bad"}],"is_error":true},
                              {"type":"text","text":"d"}]},
    {"role":"user","content":"e"}])");
  Json chat{{"chat_template_kwargs", {{"enable_thinking", false}}}};
  chat["messages"] = Json::parse(R"([
    {"role":"user","content":"a\nb"},
    {"role":"assistant","content":"c","tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
    {"role":"tool","tool_call_id":"t1","content":"Error: bad"},
    {"role":"user","content":"d\ne"}])");
  const Json given = tool("f");
  chat["tools"] = Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", given["name"]}, {"description", given["description"]}, {"parameters", given["input_schema"]}}}}});
  CHECK(prompt_of("/v1/messages", body_of(extra)) == prompt_of("/v1/chat/completions", dump_json(chat)));
}

TEST_CASE("a final assistant message is continued") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  Json extra;
  extra["messages"] = Json::parse(R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Well,"}])");
  CHECK(client.post("/v1/messages", body_of(extra)).status == 200);
  CHECK(prompt_text(server) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nWell,");
}

TEST_CASE("forced calls are constrained, and one at a time where parallel ones are off") {
  TestServer server(says("x"));
  HttpClient client(server.port());
  const auto grammar_of = [&](const Json& choice) {
    const Json extra{{"tools", Json::array({tool("f"), tool("g")})}, {"tool_choice", choice}};
    CHECK(client.post("/v1/messages", body_of(extra)).status == 200);
    return server.engine().last_request()->grammar;
  };
  const auto accepts = [](const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
    auto state = grammar->start();
    for (const TokenId token : bytes(text)) {
      if (!state->accept(token)) return false;
    }
    return true;
  };
  const auto call = [](const std::string& name) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": {\"a\":1}}\n</tool_call>";
  };
  const auto free = grammar_of({{"type", "auto"}});
  REQUIRE(free != nullptr);
  CHECK(accepts(free, "no call"));
  CHECK(accepts(free, "Well: " + call("f")));
  CHECK_FALSE(accepts(free, call("h")));
  CHECK(grammar_of({{"type", "none"}}) == nullptr);
  const auto any = grammar_of({{"type", "any"}});
  REQUIRE(any != nullptr);
  CHECK(accepts(any, call("f")));
  CHECK(accepts(any, call("g")));
  CHECK_FALSE(accepts(any, "no call"));
  const auto one = grammar_of({{"type", "tool"}, {"name", "g"}, {"disable_parallel_tool_use", true}});
  REQUIRE(one != nullptr);
  CHECK(accepts(one, call("g")));
  CHECK_FALSE(accepts(one, call("f")));
  CHECK(accepts(any, call("f") + "\n<"));
  CHECK_FALSE(accepts(one, call("g") + "\n<"));
}

TEST_CASE("output_config.format constrains the text") {
  TestServer server(says("1"));
  HttpClient client(server.port());
  Json extra;
  extra["output_config"] =
      Json::parse(R"({"effort":"low","format":{"type":"json_schema","schema":{"type":"integer"}}})");
  CHECK(client.post("/v1/messages", body_of(extra)).status == 200);
  CHECK(server.engine().last_request()->grammar != nullptr);
}

TEST_CASE("tokens are counted as the message would be, at any length") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  Json extra{{"system", "s"}, {"tools", Json::array({tool("f")})}};
  const Json count = Json::parse(client.post("/v1/messages/count_tokens", body_of(extra)).body);
  client.post("/v1/messages", body_of(extra));
  CHECK(count == Json{{"input_tokens", server.engine().last_request()->prompt.size()}});
  Json wide;
  wide["messages"] = Json::array({{{"role", "user"}, {"content", std::string(5000, 'x')}}});
  const HttpReply reply = client.post("/v1/messages/count_tokens", dump_json(wide));
  REQUIRE(reply.status == 200);
  CHECK(Json::parse(reply.body)["input_tokens"] > 5000);
}

TEST_CASE("refusals are in Anthropic's form and name the field") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const auto refused = [&](const Json& extra, const std::string& named) {
    const HttpReply reply = client.post("/v1/messages", body_of(extra));
    INFO(reply.body);
    CHECK(reply.status == 400);
    const Json body = Json::parse(reply.body);
    CHECK(body["type"] == "error");
    CHECK(body["error"]["type"] == "invalid_request_error");
    CHECK(body["request_id"] == field_of(reply, "request-id"));
    CHECK(body["error"]["message"].get<std::string>().find(named) != std::string::npos);
  };
  const auto refused_messages = [&](const std::string& messages, const std::string& named) {
    refused(Json{{"messages", Json::parse(messages)}}, named);
  };
  refused({{"max_tokens", nullptr}}, "max_tokens");
  refused({{"max_tokens", 0}}, "max_tokens");
  refused({{"temperature", 1.5}}, "temperature");
  refused({{"n", 2}}, "n");
  refused({{"stop", "x"}}, "stop_sequences");
  refused({{"messages", nullptr}}, "messages");
  refused({{"messages", Json::array()}}, "messages");
  refused({{"system", 1}}, "system");
  refused({{"thinking", {{"type", "enabled"}}}}, "thinking.budget_tokens");
  refused({{"thinking", {{"type", "enabled"}, {"budget_tokens", 100}}}}, "thinking.budget_tokens");
  refused({{"tools", Json::array({{{"name", "f"}}})}}, "tools.0.input_schema");
  refused({{"tool_choice", {{"type", "any"}}}}, "tools");
  refused({{"output_config", {{"format", {{"type", "json_schema"}}}}}}, "output_config.format.schema");
  refused_messages(R"([1])", "messages.0");
  refused_messages(R"([{"role":"tool","content":"x"}])", "messages.0.role");
  refused_messages(R"([{"role":"user"}])", "messages.0.content");
  refused_messages(R"([{"role":"user","content":[{"type":"text"}]}])", "messages.0.content.0.text");
  refused_messages(R"([{"role":"user","content":[{"type":"image","source":{}}]}])", "messages.0.content.0.type");
  const auto refused_block = [&](const std::string& block, const std::string& named) {
    refused_messages(R"([{"role":"assistant","content":[)" + block + "]}]", "messages.0.content.0." + named);
  };
  refused_block(R"({"type":"thinking","signature":"s"})", "thinking");
  refused_block(R"({"type":"tool_use","name":"f","input":{}})", "id");
  refused_block(R"({"type":"tool_use","id":"t","name":"","input":{}})", "name");
  refused_messages(R"([{"role":"user","content":[{"type":"tool_result","tool_use_id":"x"}]}])",
                   "messages.0.content.0.tool_use_id");
  refused_messages(R"([{"role":"assistant","content":[{"type":"tool_use","id":"t9","name":"f","input":{}}]},
                       {"role":"user","content":"well?"}])",
                   "t9");
  refused_messages(R"([{"role":"assistant","content":[{"type":"tool_use","id":"t9","name":"f","input":{}}]},
                       {"role":"user","content":[{"type":"tool_result","tool_use_id":"t9",
                                                  "content":[{"type":"image"}]}]}])",
                   "messages.1.content.0.content.0.type");
}

TEST_CASE("every other failure at Anthropic's paths has Anthropic's form too") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const auto type_of = [](const HttpReply& reply) { return Json::parse(reply.body)["error"]["type"]; };
  CHECK(type_of(client.post("/v1/messages", "{")) == "invalid_request_error");
  CHECK(type_of(client.post("/v1/messages", body_of({{"model", "absent"}}))) == "not_found_error");
  CHECK(type_of(client.get("/v1/messages")) == "invalid_request_error");
  CHECK(type_of(client.post("/v1/messages/batches", "{}")) == "not_found_error");
  server.engine().queue().close();
  const HttpReply draining = client.post("/v1/messages", body_of());
  CHECK(draining.status == 503);
  CHECK(type_of(draining) == "overloaded_error");
  CHECK_FALSE(field_of(draining, "retry-after").empty());
}
