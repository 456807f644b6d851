// context_management: the parts removed from a conversation, the answer's report of them, and refusals.
#include <catch2/catch.hpp>

#include "server/api/common/json.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace context_management {

// A conversation of an agent that has used its tools so often.
Json agent_body(int num_uses, const Json& edits) {
  Json messages = Json::array({{{"role", "user"}, {"content", "Count"}}});
  for (int i = 0; i < num_uses; ++i) {
    const std::string id = "call" + std::to_string(i);
    const Json thinking{{"type", "thinking"}, {"thinking", "thought" + std::to_string(i)}, {"signature", ""}};
    const Json use{{"type", "tool_use"},
                   {"id", id},
                   {"name", i == 0 ? "rules" : "look"},
                   {"input", {{"path", "path" + std::to_string(i)}}}};
    messages.push_back({{"role", "assistant"}, {"content", Json::array({thinking, use})}});
    const Json result{{"type", "tool_result"},
                      {"tool_use_id", id},
                      {"content", "result" + std::to_string(i) + std::string(100, '.')}};
    messages.push_back({{"role", "user"}, {"content", Json::array({result})}});
  }
  Json body{{"max_tokens", 5}, {"messages", messages}, {"context_management", {{"edits", edits}}}};
  for (const char* const name : {"rules", "look"})
    body["tools"].push_back({{"name", name}, {"input_schema", {{"type", "object"}}}});
  return body;
}

Json clear_uses(const Json& more = Json::object()) {
  Json edit{{"type", "clear_tool_uses_20250919"}, {"trigger", {{"type", "input_tokens"}, {"value", 10}}}};
  edit.update(more);
  return Json::array({edit});
}

// A template that shows all of a conversation.
void show_all(ServedModel& model) {
  constexpr const char* kTemplate =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
      "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
      "{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
      "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
      "{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  model.chat_template = std::make_shared<ChatTemplate>(*ChatTemplate::parse(kTemplate));
  model.template_capabilities = probe_capabilities(*model.chat_template);
}

struct Agent {
  TestServer server{says("done"), test_options(), &show_all};
  HttpClient client{server.port()};

  Json ask(const Json& body) { return answer_to(client, "/v1/messages", dump_json(body)); }
  bool shows(const std::string& text) { return prompt_text(server).find(text) != std::string::npos; }
  Json refusal(const Json& body) {
    const HttpReply reply = client.post("/v1/messages", dump_json(body));
    CHECK(reply.status == 400);
    return Json::parse(reply.body)["error"];
  }
};

TEST_CASE("old tool results are left out beyond the trigger, and the answer says how many") {
  Agent agent;
  const Json answer = agent.ask(agent_body(6, clear_uses()));
  const Json& applied = answer["context_management"]["applied_edits"];
  REQUIRE(applied.size() == 1);
  CHECK(applied[0]["type"] == "clear_tool_uses_20250919");
  CHECK(applied[0]["cleared_tool_uses"] == 3);
  CHECK_FALSE(agent.shows("result0"));
  CHECK_FALSE(agent.shows("result2"));
  CHECK(agent.shows("result3"));
  CHECK(agent.shows("result5"));
  CHECK(agent.shows("[Old tool result content cleared]"));
  CHECK(agent.shows("path0"));
}

TEST_CASE("what is kept, excluded and counted is as the edit says") {
  Agent agent;
  agent.ask(agent_body(6, clear_uses({{"keep", {{"type", "tool_uses"}, {"value", 1}}}})));
  CHECK_FALSE(agent.shows("result4"));
  CHECK(agent.shows("result5"));
  agent.ask(agent_body(6, clear_uses({{"exclude_tools", {"rules"}}, {"clear_tool_inputs", true}})));
  CHECK(agent.shows("result0"));
  CHECK(agent.shows("path0"));
  CHECK_FALSE(agent.shows("result1"));
  CHECK_FALSE(agent.shows("path1"));
  const Json by_uses{{"trigger", {{"type", "tool_uses"}, {"value", 6}}}};
  CHECK(agent.ask(agent_body(6, clear_uses(by_uses)))["context_management"]["applied_edits"].empty());
  CHECK(agent.shows("result0"));
  CHECK(agent.ask(agent_body(7, clear_uses(by_uses)))["context_management"]["applied_edits"].size() == 1);
}

TEST_CASE("nothing is left out below the trigger, or where too little would go") {
  Agent agent;
  const Json below{{"trigger", {{"type", "input_tokens"}, {"value", 100000}}}};
  CHECK(agent.ask(agent_body(6, clear_uses(below)))["context_management"]["applied_edits"].empty());
  CHECK(agent.shows("result0"));
  const Json least{{"clear_at_least", {{"type", "input_tokens"}, {"value", 100000}}}};
  CHECK(agent.ask(agent_body(6, clear_uses(least)))["context_management"]["applied_edits"].empty());
  CHECK(agent.shows("result0"));
  Json without = agent_body(6, Json::array());
  without.erase("context_management");
  CHECK_FALSE(agent.ask(without).contains("context_management"));
}

TEST_CASE("the count of a message's tokens is that of its edited conversation, and of the one before") {
  Agent agent;
  std::string filler(400, 'x');
  Json body = agent_body(6, clear_uses());
  body["messages"][2]["content"][0]["content"] = filler;
  body.erase("max_tokens");
  const Json edited = answer_to(agent.client, "/v1/messages/count_tokens", dump_json(body));
  body["context_management"]["edits"] = Json::array();
  const Json whole = answer_to(agent.client, "/v1/messages/count_tokens", dump_json(body));
  CHECK(edited["input_tokens"] < whole["input_tokens"]);
  CHECK(edited["context_management"]["original_input_tokens"] == whole["input_tokens"]);
}

TEST_CASE("thinking of earlier turns is left out where that is asked for, and not where all is kept") {
  Agent agent;
  const auto thinking_of = [&](const Json& edit) {
    return agent.ask(agent_body(4, Json::array({edit})))["context_management"]["applied_edits"];
  };
  const Json kept = thinking_of({{"type", "clear_thinking_20251015"}, {"keep", "all"}});
  CHECK(kept.empty());
  CHECK(agent.shows("thought0"));
  const Json applied =
      thinking_of({{"type", "clear_thinking_20251015"}, {"keep", {{"type", "thinking_turns"}, {"value", 3}}}});
  REQUIRE(applied.size() == 1);
  CHECK(applied[0]["cleared_thinking_turns"] == 1);
  CHECK(applied[0]["cleared_input_tokens"] > 0);
  CHECK_FALSE(agent.shows("thought0"));
  CHECK(agent.shows("thought1"));
}

TEST_CASE("a streamed message says at its end what was left out") {
  Agent agent;
  Json body = agent_body(6, clear_uses());
  body["stream"] = true;
  const HttpReply reply = agent.client.post("/v1/messages", dump_json(body));
  const std::size_t at = reply.body.find("event: message_delta");
  REQUIRE(at != std::string::npos);
  CHECK(reply.body.find(R"("cleared_tool_uses":3)", at) != std::string::npos);
}

TEST_CASE("edits that cannot be made are refused by their place") {
  Agent agent;
  const auto message_of = [&](const Json& edits) {
    return agent.refusal(agent_body(1, edits))["message"].get<std::string>();
  };
  const auto names = [](const std::string& message, const char* path) {
    return message.find(path) != std::string::npos;
  };
  CHECK(names(message_of(Json::array({{{"type", "seer_20991231"}}})), "context_management.edits.0.type"));
  CHECK(names(message_of(Json::array({Json::object()})), "context_management.edits.0.type"));
  CHECK(names(message_of(Json::array({1})), "context_management.edits.0"));
  CHECK(names(message_of(clear_uses({{"keep", {{"type", "turns"}, {"value", 1}}}})),
              "context_management.edits.0.keep.type"));
  CHECK(names(message_of(clear_uses({{"trigger", {{"type", "input_tokens"}}}})),
              "context_management.edits.0.trigger.value"));
}

TEST_CASE("a response is made where its input is below the threshold of a compaction, else the field is refused") {
  TestServer server(says("fine"));
  HttpClient client(server.port());
  const auto ask = [&](int threshold) {
    const Json edit{{"type", "compaction"}, {"compact_threshold", threshold}};
    return client.post("/v1/responses",
                       dump_json(Json{{"input", "Hello there"}, {"context_management", Json::array({edit})}}));
  };
  CHECK(ask(1000).status == 200);
  const HttpReply refused = ask(10);
  CHECK(refused.status == 400);
  const Json error = Json::parse(refused.body)["error"];
  CHECK(error["param"] == "context_management");
  CHECK(error["message"].get<std::string>().find("/v1/responses/compact") != std::string::npos);
  const HttpReply other = client.post("/v1/responses", R"({"input":"x","context_management":[{"type":"other"}]})");
  CHECK(Json::parse(other.body)["error"]["param"] == "context_management[0].type");
}

}  // namespace context_management
