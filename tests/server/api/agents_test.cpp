// Requests in the form of coding agents: tools that other servers run, tools of other kinds, and parts of a prompt that
// change with each request.
#include <catch2/catch.hpp>

#include "server/api/common/json.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

std::string warning_of(const HttpReply& reply) {
  const auto found = reply.fields.find("x-quire-warning");
  return found == reply.fields.end() ? "" : found->second;
}

std::string called(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
}

const std::string kAgentTools =
    R"("tools":[{"type":"function","name":"read","parameters":{"type":"object"}},)"
    R"({"type":"namespace","name":"crew","description":"d","tools":[{"type":"function","name":"stop","strict":false,"parameters":{"type":"object"}}]},)"
    R"({"type":"custom","name":"patch","description":"Edits files","format":{"type":"grammar","syntax":"lark","definition":"start: WORD"}},)"
    R"({"type":"local_shell"},{"type":"web_search","external_web_access":true},{"type":"image_generation"}])";

struct Answered {
  Json item;  // the only one of the output
  std::vector<Json> events;
};

Answered agent_asks(const std::string& said, const std::string& input = R"("x")") {
  TestServer server(says(said));
  HttpClient client(server.port());
  const std::string body = "\"input\":" + input + "," + kAgentTools + "}";
  const Json whole = answer_to(client, "/v1/responses", "{" + body);
  REQUIRE(whole["output"].size() == 1);
  Answered answered{whole["output"][0], {}};
  for (const std::string& data : sse_data(client.post("/v1/responses", "{\"stream\":true," + body).body))
    answered.events.push_back(Json::parse(data));
  Json streamed = answered.events.back()["response"]["output"][0];
  Json expected = answered.item;
  for (const char* id : {"id", "call_id"}) {
    streamed.erase(id);
    expected.erase(id);
  }
  CHECK(streamed == expected);
  return answered;
}

}  // namespace

TEST_CASE("tools that OpenAI's servers run are left out with a warning; the others are offered") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const HttpReply reply = client.post("/v1/responses", R"({"input":"x",)" + kAgentTools + "}");
  REQUIRE(reply.status == 200);
  CHECK(warning_of(reply).find("image_generation") != std::string::npos);  // the last of them
  CHECK(Json::parse(reply.body)["tools"].size() == 6);
  const std::string prompt = prompt_text(server);
  for (const char* name : {"read", "crew.stop", "patch", "local_shell", "start: WORD"})
    CHECK(prompt.find(name) != std::string::npos);
  CHECK(prompt.find("web_search") == std::string::npos);
  // A tool_choice must name a tool that the model has.
  CHECK(refused_param(client, "/v1/responses",
                      R"({"input":"x",)" + kAgentTools + R"(,"tool_choice":{"type":"web_search"}})") == "tool_choice");
}

TEST_CASE("what a client writes into a tool's type stays out of the head of the response") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const HttpReply reply = client.post(
      "/v1/responses", R"({"input":"x","tools":[{"type":"web_search_20\r\nSet-Cookie: a=b\r\n\r\nHTTP/1.1 200 OK"}]})");
  REQUIRE(reply.status == 200);
  CHECK(reply.fields.count("set-cookie") == 0);
  CHECK(warning_of(reply).find("??Set-Cookie") != std::string::npos);
  std::string many;
  for (int i = 0; i < 200; ++i)
    many += std::string(i == 0 ? "" : ",") + R"({"type":"web_search_20)" + std::string(1000, 'x') + "\"}";
  client.send("POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: " +
              std::to_string(std::string(R"({"input":"x","tools":[]})").size() + many.size()) +
              "\r\nContent-Type: application/json\r\n\r\n" + R"({"input":"x","tools":[)" + many + "]}");
  const HttpReply bounded = client.receive();
  CHECK(bounded.status == 200);
  CHECK(warning_of(bounded).size() <= 200);
}

TEST_CASE("a call of a namespace's function has both names, and its history is read back") {
  const Answered answered = agent_asks(called("crew.stop", "{}"));
  CHECK(answered.item["type"] == "function_call");
  CHECK(answered.item["namespace"] == "crew");
  CHECK(answered.item["name"] == "stop");
  TestServer server(says("ok"));
  HttpClient client(server.port());
  Json input = Json::array({{{"role", "user"}, {"content", "x"}}, answered.item});
  input.push_back({{"type", "function_call_output"},
                   {"call_id", answered.item["call_id"]},
                   {"output", Json::array({{{"type", "input_text"}, {"text", "stopped"}}})}});
  answer_to(client, "/v1/responses", "{\"input\":" + dump_json(input) + "," + kAgentTools + "}");
  CHECK(prompt_text(server).find("crew.stop") != std::string::npos);
  CHECK(prompt_text(server).find("stopped") != std::string::npos);
}

TEST_CASE("a custom tool's call is its text, whole and streamed, and its history is read back") {
  const Answered answered = agent_asks(called("patch", R"({"input": "line\nother"})"));
  CHECK(answered.item["type"] == "custom_tool_call");
  CHECK(answered.item["input"] == "line\nother");
  const auto event = [&](const std::string& type) {
    for (const Json& each : answered.events)
      if (each["type"] == type) return each;
    return Json();
  };
  CHECK(event("response.custom_tool_call_input.delta")["delta"] == "line\nother");
  CHECK(event("response.custom_tool_call_input.done")["input"] == "line\nother");
  CHECK(event("response.function_call_arguments.delta").is_null());
  TestServer server(says("ok"), test_options(), [](ServedModel& model) {
    constexpr const char* kTemplate =
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}={{ c.function.arguments }};"
        "{% endfor %}{{ m.content }}{% endfor %}";
    model.chat_template = std::make_shared<ChatTemplate>(*ChatTemplate::parse(kTemplate));
    model.template_capabilities = probe_capabilities(*model.chat_template);
  });
  HttpClient client(server.port());
  Json input = Json::array({{{"role", "user"}, {"content", "x"}}, answered.item});
  input.push_back({{"type", "custom_tool_call_output"}, {"call_id", answered.item["call_id"]}, {"output", "done"}});
  answer_to(client, "/v1/responses", "{\"input\":" + dump_json(input) + "," + kAgentTools + "}");
  const std::string prompt = prompt_text(server);
  REQUIRE(prompt.find("patch=") != std::string::npos);
  CHECK(prompt.find("other", prompt.find("patch=")) < prompt.find(";", prompt.find("patch=")));
}

TEST_CASE("a call of the local shell is its action") {
  const Answered answered = agent_asks(called("local_shell", R"({"command": ["ls", "-l"], "timeout_ms": 5})"));
  CHECK(answered.item["type"] == "local_shell_call");
  CHECK(answered.item["action"] ==
        Json{{"type", "exec"}, {"command", {"ls", "-l"}}, {"env", Json::object()}, {"timeout_ms", 5}});
  TestServer server(says("ok"));
  HttpClient client(server.port());
  Json input = Json::array({{{"role", "user"}, {"content", "x"}}, answered.item});
  input.push_back({{"type", "local_shell_call_output"}, {"call_id", answered.item["call_id"]}, {"output", "a.txt"}});
  answer_to(client, "/v1/responses", "{\"input\":" + dump_json(input) + "," + kAgentTools + "}");
  CHECK(prompt_text(server).find("a.txt") != std::string::npos);
}

TEST_CASE("items of OpenAI's own tools are left out of a conversation; a probe without input is answered") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const HttpReply reply =
      client.post("/v1/responses", R"({"input":[{"type":"web_search_call","id":"ws_1","status":"completed"},)"
                                   R"({"role":"user","content":"Hi"}]})");
  CHECK(reply.status == 200);
  CHECK(warning_of(reply).find("web_search_call") != std::string::npos);
  CHECK(prompt_text(server) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  CHECK(client.post("/v1/responses", R"({"input":[]})").status == 200);
}

TEST_CASE("developers' messages before the first turn are one message") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  answer_to(client, "/v1/responses",
            R"({"input":[{"role":"developer","content":"A"},{"role":"developer","content":"B"},)"
            R"({"role":"user","content":"Hi"}]})");
  CHECK(prompt_text(server) ==
        "<|im_start|>developer\nA\n\nB<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("Claude Code's server tools and foreign blocks are left out, and its billing block changes no prompt") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const auto ask = [&](const std::string& billing) {
    const HttpReply reply = client.post(
        "/v1/messages",
        R"({"max_tokens":5,"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=)" +
            billing +
            R"(;"},{"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral"}}],)"
            R"("tools":[{"type":"web_search_20250305","name":"web_search","max_uses":8},{"name":"f","input_schema":{"type":"object"},"defer_loading":true}],)"
            R"("context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},)"
            R"("metadata":{"user_id":"u"},"messages":[{"role":"user","content":"Hi"},)"
            R"({"role":"assistant","content":[{"type":"redacted_thinking","data":"x"},{"type":"text","text":"Yes"}]},)"
            R"({"role":"user","content":"Go on"}]})");
    INFO(reply.body);
    REQUIRE(reply.status == 200);
    CHECK_FALSE(warning_of(reply).empty());
    return server.engine().last_request()->prompt;
  };
  const auto first = ask("aaaa1");
  CHECK(ask("bbbb2") == first);
  const std::string prompt = prompt_text(server);
  CHECK(prompt.find("billing") == std::string::npos);
  CHECK(prompt.find("You are an agent.") != std::string::npos);
  CHECK(prompt.find("web_search") == std::string::npos);
}
