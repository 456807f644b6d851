// Forms of requests that clients send besides the references' forms: each is accepted, its texts reach the prompt, and
// ignored parts give a warning.
#include <catch2/catch.hpp>

#include "tests/server/test_server.h"

namespace quire::test {
namespace {

struct Form {
  std::string body;                // follows `"max_tokens":3,` or its equivalent
  std::vector<std::string> texts;  // texts expected in the prompt
  std::string warning = {};
};

void check_forms(const std::string& path, const std::string& begin, const std::vector<Form>& forms) {
  TestServer server;
  HttpClient client(server.port());
  for (const Form& form : forms) {
    const HttpReply reply = client.post(path, "{" + begin + form.body + "}");
    INFO(path << " " << form.body << ": " << reply.body);
    REQUIRE(reply.status == 200);
    const std::string prompt = prompt_text(server);
    for (const std::string& text : form.texts)
      CHECK_THAT(prompt, Catch::Contains(text));
    const auto warned = reply.fields.find("x-quire-warning");
    const std::string warnings = warned == reply.fields.end() ? "" : warned->second;
    CHECK_THAT(warnings, Catch::Contains(form.warning));
  }
}

// A chat with a call whose function is given, and its result.
std::string with_call(const std::string& function, const std::string& result = R"("content":"RES")") {
  return R"("messages":[{"role":"user","content":"ASK"},{"role":"assistant","content":null,"tool_calls":[{"id":"c",
    "type":"function","function":{"name":"look")" +
         function + R"(}}]},{"role":"tool","tool_call_id":"c",)" + result + "}]";
}

std::string answered(const std::string& answer) {
  return R"("messages":[{"role":"user","content":"ASK"},{"role":"assistant")" + answer +
         R"(},{"role":"user","content":"MORE"}])";
}

const std::string kTurn = R"("messages":[{"role":"user","content":"ASK"}],)";

TEST_CASE("chats: contents and arguments of a history in the forms that clients keep") {
  const std::string shown = "shown as {}";
  check_forms("/v1/chat/completions", R"("max_tokens":3,)",
              {{with_call(R"(,"arguments":{"a":"VAL"})"), {"VAL", "RES"}},
               {with_call(R"(,"arguments":[1])"), {"look", "RES"}, shown},
               {with_call(R"(,"arguments":3)"), {"look", "RES"}, shown},
               {with_call(R"(,"arguments":null)"), {"look", "RES"}},
               {with_call(""), {"look", "RES"}},
               {with_call(R"(,"arguments":"{}")", R"("content":null)"), {"look"}},
               {with_call(R"(,"arguments":"{}")", R"("content":[])"), {"look"}},
               {with_call(R"(,"arguments":"{}")", R"("name":"look")"), {"look"}},
               {answered(R"(,"content":null)"), {"ASK", "MORE"}},
               {answered(R"(,"content":[])"), {"ASK", "MORE"}},
               {answered(""), {"ASK", "MORE"}},
               {answered(R"(,"content":["ONE",{"type":"text","text":"TWO"}])"), {"ONE\nTWO", "MORE"}},
               {answered(R"(,"content":[{"type":"thinking","thinking":[{"type":"text","text":"HM"}]},
                 {"type":"text","text":"ONE"}])"),
                {"ONE", "MORE"}}});
}

TEST_CASE("chats: tools and choices in the forms that clients keep") {
  const std::string tool = R"("tools":[{"type":"function","function":{"name":"look"}}])";
  check_forms("/v1/chat/completions", R"("max_tokens":3,)" + kTurn,
              {{R"("tools":[{"function":{"name":"look"}}])", {"look"}},
               {R"("tools":[{"type":"builtin_function","function":{"name":"$seer"}}])", {"ASK"}, "'builtin_function'"},
               {tool + R"(,"tool_choice":{"type":"auto"})", {"look"}},
               {tool + R"(,"tool_choice":"any")", {"look"}},
               {tool + R"(,"tool_choice":{"type":"any"})", {"look"}},
               {R"("prompt_cache_retention":"in-memory")", {"ASK"}}});
}

TEST_CASE("responses: items of a history in the forms that clients keep") {
  const auto items = [](const std::string& more) {
    return R"("input":[{"role":"user","content":"ASK"},)" + more + "]";
  };
  const auto call = [&](const std::string& arguments) {
    return items(R"({"type":"function_call","call_id":"c","name":"look")" + arguments +
                 R"(},{"type":"function_call_output","call_id":"c","output":"RES"})");
  };
  check_forms("/v1/responses", R"("max_output_tokens":16,)",
              {{call(R"(,"arguments":{"a":"VAL"})"), {"VAL", "RES"}},
               {call(R"(,"arguments":[1])"), {"look", "RES"}, "shown as {}"},
               {call(R"(,"arguments":null)"), {"look", "RES"}},
               {call(""), {"look", "RES"}},
               {items(R"({"type":"reasoning","summary":[],"encrypted_content":"of another server"},
                 {"role":"assistant","content":"ONE"},{"role":"user","content":"MORE"})"),
                {"ONE", "MORE"},
                "another server encrypted"}});
}

TEST_CASE("messages: inputs of a history, and edits of the context that have nothing to do") {
  const auto call = [](const std::string& input) {
    return R"("messages":[{"role":"user","content":"ASK"},{"role":"assistant","content":[{"type":"tool_use","id":"c",
      "name":"look")" +
           input + R"(}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"RES"}]}])";
  };
  check_forms("/v1/messages", R"("max_tokens":3,)",
              {{call(R"(,"input":{"a":"VAL"})"), {"VAL", "RES"}},
               {call(R"(,"input":"{\"a\":\"VAL\"}")"), {"VAL", "RES"}},
               {call(R"(,"input":null)"), {"look", "RES"}},
               {call(R"(,"input":[1])"), {"look", "RES"}, "shown as {}"},
               {kTurn + R"("context_management":{"edits":[{"type":"compact_20260112"}]})", {"ASK"}}});
}

TEST_CASE("messages: a compaction whose trigger is passed is refused") {
  TestServer server;
  HttpClient client(server.port());
  const HttpReply reply = client.post("/v1/messages", R"({"max_tokens":3,)" + kTurn +
                                                          R"("context_management":{"edits":[{"type":"compact_20260112",
                                                            "trigger":{"type":"input_tokens","value":2}}]}})");
  CHECK(reply.status == 400);
  CHECK_THAT(reply.body, Catch::Contains("more than the trigger"));
}

TEST_CASE("Ollama: a tool without a type, and embeddings of nothing") {
  TestServer server;
  HttpClient client(server.port());
  CHECK(client.post("/api/chat", R"({"stream":false,)" + kTurn + R"("tools":[{"function":{"name":"look"}}]})").status ==
        200);
  CHECK_THAT(prompt_text(server), Catch::Contains("look"));
  CHECK(Json::parse(client.post("/api/embed", "{}").body)["embeddings"].empty());
  CHECK(Json::parse(client.post("/api/embeddings", "{}").body)["embedding"].empty());
}

}  // namespace
}  // namespace quire::test
