#include <catch2/catch.hpp>

#include "server/api/common/json.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}}])";
const std::string kMessages = R"("messages":[{"role":"user","content":"Hi"}])";

// Generates text that the grammar allows, byte by byte: the first allowed of `wishes`, else the first allowed byte,
// until the grammar may end.
std::string walk(const Grammar& grammar, std::size_t max_bytes) {
  auto state = grammar.start();
  std::string text;
  while (text.size() < max_bytes && !state->finished()) {
    std::vector<std::uint32_t> mask(9);
    state->fill_mask(mask);
    std::int32_t next = 0;
    while (next < 256 && (mask[static_cast<std::size_t>(next) / 32] >> (next % 32) & 1U) == 0)
      ++next;
    if (next == 256 || !state->accept(TokenId{next})) break;
    text += static_cast<char>(next);
  }
  return text;
}

bool accepts_all(GrammarState& state, const std::string& text) {
  for (const TokenId token : bytes(text)) {
    if (!state.accept(token)) return false;
  }
  return true;
}

// Whether a text may begin so.
bool follows(const Grammar& grammar, const std::string& text) {
  return accepts_all(*grammar.start(), text);
}

// Whether a text may be so.
bool ends(const Grammar& grammar, const std::string& text) {
  const auto state = grammar.start();
  if (!accepts_all(*state, text)) return false;
  std::vector<std::uint32_t> mask(9);
  state->fill_mask(mask);
  return (mask[static_cast<std::size_t>(kEos.value) / 32] >> (kEos.value % 32) & 1U) != 0;
}

}  // namespace

TEST_CASE("a tool call in the model's text becomes a tool call of the message") {
  TestServer server(says("Sure.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"));
  HttpClient client(server.port());
  const Json body = Json::parse(client.post("/v1/chat/completions", "{" + kMessages + "," + kTools + "}").body);
  const Json& choice = body["choices"][0];
  CHECK(choice["finish_reason"] == "tool_calls");
  REQUIRE(choice["message"]["tool_calls"].size() == 1);
  const Json& call = choice["message"]["tool_calls"][0];
  CHECK(call["type"] == "function");
  CHECK(call["id"].get<std::string>().rfind("call_", 0) == 0);
  CHECK(call["function"]["name"] == "add");
  CHECK(Json::parse(call["function"]["arguments"].get<std::string>()) == Json{{"a", 1}});
}

TEST_CASE("a streamed tool call has its name once and its arguments in pieces") {
  TestServer server(says("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 12345}}\n</tool_call>"));
  HttpClient client(server.port());
  const HttpReply reply = client.post("/v1/chat/completions", "{\"stream\":true," + kMessages + "," + kTools + "}");
  std::string name;
  std::string arguments;
  std::string reason;
  for (const std::string& data : sse_data(reply.body)) {
    if (data == "[DONE]") continue;
    const Json chunk = Json::parse(data);
    const Json& choice = chunk["choices"][0];
    if (choice["finish_reason"].is_string()) reason = choice["finish_reason"];
    if (!choice["delta"].contains("tool_calls")) continue;
    for (const Json& call : choice["delta"]["tool_calls"]) {
      name += call["function"].value("name", "");
      arguments += call["function"].value("arguments", "");
    }
  }
  CHECK(name == "add");
  CHECK(Json::parse(arguments) == Json{{"a", 12345}});
  CHECK(reason == "tool_calls");
}

TEST_CASE("without tools, or with choice none, the text stays content") {
  const std::string text = "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>";
  TestServer server(says(text));
  HttpClient client(server.port());
  const std::string none = "{\"tool_choice\":\"none\"," + kMessages + "," + kTools + "}";
  CHECK(Json::parse(client.post("/v1/chat/completions", none).body)["choices"][0]["message"]["content"] == text);
  CHECK(Json::parse(
            client.post("/v1/chat/completions", "{" + kMessages + "}").body)["choices"][0]["message"]["content"] ==
        text);
}

TEST_CASE("required, named and strict tools constrain the text; auto holds a call that began to a form that parses") {
  TestServer server(says("x"));
  HttpClient client(server.port());
  const auto grammar = [&](const std::string& choice) {
    CHECK(client.post("/v1/chat/completions", "{" + choice + kMessages + "," + kTools + "}").status == 200);
    return server.engine().last_request()->grammar;
  };
  for (const char* choice : {"", R"("tool_choice":"auto",)"}) {
    const auto lazy = grammar(choice);
    REQUIRE(lazy != nullptr);
    const std::string begun = "<tool_call>\n{\"name\": \"add\", \"arguments\": ";
    CHECK(ends(*lazy, "Free text < <tool_cal {\"name\""));
    CHECK(ends(*lazy, "Sure. " + begun + "{\"b\": [1]}}\n</tool_call> and " + begun + "{}}\n</tool_call>"));
    CHECK_FALSE(follows(*lazy, "<tool_call>x"));
    CHECK_FALSE(follows(*lazy, "<tool_call>\n{\"name\": \"sub\""));
    CHECK_FALSE(follows(*lazy, begun + "5"));
    CHECK_FALSE(ends(*lazy, begun + "{\"b\": 1}"));  // the call is not closed
  }
  const std::string forced = "<tool_call>\n{\"name\": \"add\", \"arguments\": {";
  const auto required = grammar(R"("tool_choice":"required",)");
  REQUIRE(required != nullptr);
  CHECK(follows(*required, forced));
  CHECK_FALSE(follows(*required, "x"));
  const auto named = grammar(R"("tool_choice":{"type":"function","function":{"name":"add"}},)");
  REQUIRE(named != nullptr);
  CHECK(follows(*named, forced + "\"a\": 1}}"));
  CHECK_FALSE(follows(*named, forced + "}"));
}

TEST_CASE("an answer's schema beside tools leaves calls possible, and calls that are required come") {
  TestServer server(says("x"));
  HttpClient client(server.port());
  const std::string format =
      R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"s":{"type":"string"}},"required":["s"],"additionalProperties":false}}},)";
  const auto grammar = [&](const std::string& choice) {
    CHECK(client.post("/v1/chat/completions", "{" + choice + format + kMessages + "," + kTools + "}").status == 200);
    return server.engine().last_request()->grammar;
  };
  const std::string call = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  const auto either = grammar("");
  CHECK(ends(*either, call));
  CHECK(ends(*either, R"({"s": "y"})"));
  CHECK_FALSE(follows(*either, R"({"s": 1)"));
  CHECK_FALSE(follows(*either, "Sure"));
  const auto required = grammar(R"("tool_choice":"required",)");
  CHECK(ends(*required, call));
  CHECK_FALSE(follows(*required, "{"));
}

TEST_CASE("tools and choices that make no sense are refused by name") {
  TestServer server(says("x"));
  HttpClient client(server.port());
  const auto refused = [&](const std::string& fields) {
    const HttpReply reply = client.post("/v1/chat/completions", "{" + kMessages + "," + fields + "}");
    CHECK(reply.status == 400);
    return Json::parse(reply.body)["error"].value("param", "");
  };
  CHECK(refused(R"("tools":[{}])") == "tools[0].type");
  CHECK(refused(R"("tools":[{"type":"function","function":{"name":"a b"}}])") == "tools[0].function.name");
  CHECK(refused(R"("tool_choice":"required")") == "tool_choice");
  CHECK(refused(kTools + R"(,"tool_choice":{"type":"function","function":{"name":"sub"}})") == "tool_choice");
  CHECK(refused(R"("functions":[{"name":"a b"}])") == "functions[0].name");
  CHECK(refused(R"("functions":[{"name":"f"}],"function_call":{"name":"g"})") == "function_call");
  CHECK(refused(R"("functions":[{"name":"f"}],)" + kTools) == "tools");
}

TEST_CASE("an error names a tool by its own place, behind tools that are left out and in each API's form") {
  TestServer server;
  HttpClient client(server.port());
  CHECK(refused_param(client, "/v1/responses",
                      R"({"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"a b"}]})") ==
        "tools[1].name");
  CHECK(refused_param(client, "/v1/responses",
                      R"({"input":"x","tools":[{"type":"web_search"},{"type":"namespace","name":"n","tools":[)"
                      R"({"type":"function","name":"f"},{"type":"function","name":"f"}]}]})") ==
        "tools[1].tools[1].name");
  const auto messages = [&](const std::string& tools) {
    const std::string body = R"({"max_tokens":5,)" + kMessages + R"(,"tools":[{"type":"bash_20250124","name":"bash"},)";
    return client.post("/v1/messages", body + tools + "]}").body;
  };
  const std::string tool = R"({"name":"f","input_schema":{"type":"object"}})";
  CHECK(messages(tool + "," + tool).find("tools.2.name: Two tools are called 'f'") != std::string::npos);
  CHECK(messages(R"({"name":"a b","input_schema":{"type":"object"}})").find("'tools.1.name' must be") !=
        std::string::npos);
}

TEST_CASE("response formats and vLLM's and llama-server's spellings compile to one grammar") {
  TestServer server(says("x"));
  HttpClient client(server.port());
  const auto text = [&](const std::string& fields) {
    const HttpReply reply = client.post("/v1/chat/completions", "{" + kMessages + "," + fields + "}");
    INFO(reply.body);
    CHECK(reply.status == 200);
    REQUIRE(server.engine().last_request()->grammar != nullptr);
    return walk(*server.engine().last_request()->grammar, 20);
  };
  // A JSON string may be spelt with escapes.
  const auto value = [&](const std::string& fields) { return Json::parse(text(fields)); };
  const std::string schema = R"({"const":"hi"})";
  CHECK(value(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)" + schema + "}}") ==
        "hi");
  CHECK(value(R"("guided_json":)" + schema) == "hi");
  CHECK(value(R"("structured_outputs":{"json":)" + schema + "}") == "hi");
  CHECK(value(R"("json_schema":)" + schema) == "hi");
  CHECK(text(R"("guided_regex":"ab{3}")") == "abbb");
  CHECK(text(R"("guided_choice":["only"])") == "only");
  CHECK(text(R"("grammar":"root ::= \"a\"{5,5}")") == "aaaaa");
  CHECK(text(R"("response_format":{"type":"json_object"})").substr(0, 1) == "{");
}

TEST_CASE("a schema that cannot be enforced is refused with the place in it") {
  TestServer server(says("x"));
  HttpClient client(server.port());
  const HttpReply reply = client.post(
      "/v1/chat/completions",
      "{" + kMessages +
          R"(,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"hiccup"}}}})");
  CHECK(reply.status == 400);
  CHECK(Json::parse(reply.body)["error"].value("param", "").rfind("response_format.json_schema.schema", 0) == 0);
  CHECK(client.post("/v1/chat/completions", "{" + kMessages + R"(,"response_format":{"type":"sound"}})").status == 400);
}

TEST_CASE("OpenAI's first form of tools is answered in its own words") {
  TestServer server(says("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 12345}}\n</tool_call>"));
  HttpClient client(server.port());
  const std::string fields =
      kMessages +
      R"(,"functions":[{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}])";
  const Json body = Json::parse(client.post("/v1/chat/completions", "{" + fields + "}").body);
  const Json& choice = body["choices"][0];
  CHECK(choice["finish_reason"] == "function_call");
  CHECK_FALSE(choice["message"].contains("tool_calls"));
  const Json call = choice["message"]["function_call"];
  CHECK(call["name"] == "add");
  CHECK(Json::parse(call["arguments"].get<std::string>()) == Json{{"a", 12345}});
  std::string name;
  std::string arguments;
  std::string reason;
  for (const std::string& data :
       sse_data(client.post("/v1/chat/completions", "{\"stream\":true," + fields + "}").body)) {
    if (data == "[DONE]") continue;
    const Json chunk = Json::parse(data)["choices"][0];
    if (chunk["finish_reason"].is_string()) reason = chunk["finish_reason"];
    if (!chunk["delta"].contains("function_call")) continue;
    name += chunk["delta"]["function_call"].value("name", "");
    arguments += chunk["delta"]["function_call"].value("arguments", "");
  }
  CHECK(name == "add");
  CHECK(arguments == call["arguments"].get<std::string>());
  CHECK(reason == "function_call");
  client.post("/v1/chat/completions", "{\"function_call\":{\"name\":\"add\"}," + fields + "}");
  CHECK(server.engine().last_request()->grammar != nullptr);
}

TEST_CASE("a history in OpenAI's first form of tools is taken") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const auto ask = [&](const std::string& call) {
    return client.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"},
      {"role":"assistant","content":null,"function_call":)" +
                                                   call + R"(},{"role":"function","name":"add","content":"2"}]})");
  };
  CHECK(ask(R"({"name":"add","arguments":"{\"a\": 1}"})").status == 200);
  const HttpReply reply = ask(R"({"arguments":"{}"})");
  CHECK(reply.status == 400);
  CHECK(Json::parse(reply.body)["error"]["param"] == "messages[1].function_call");
}

TEST_CASE("calls are held under auto in formats that have any") {
  const auto plain = [](const char* format) {
    TestServer server(says("x"), test_options(),
                      [format](ServedModel& model) { model.tool_format = *find_tool_format(format); });
    HttpClient client(server.port());
    CHECK(client.post("/v1/chat/completions", "{" + kMessages + "," + kTools + "}").status == 200);
    return server.engine().last_request()->grammar == nullptr;
  };
  CHECK(plain("none"));
  CHECK_FALSE(plain("jamba"));
  CHECK_FALSE(plain("llama3"));
  CHECK_FALSE(plain("pythonic"));
  CHECK_FALSE(plain("mistral"));
  CHECK_FALSE(plain("qwen3_coder"));
  CHECK_FALSE(plain("hermes"));
}

TEST_CASE("a reasoning section with a budget may still end the text, and calls after it parse") {
  TestServer server(says("x"), test_options(), let_think);
  HttpClient client(server.port());
  CHECK(client
            .post("/v1/chat/completions",
                  R"({"enable_thinking":true,"thinking_token_budget":64,)" + kMessages + "," + kTools + "}")
            .status == 200);
  const auto grammar = server.engine().last_request()->grammar;
  REQUIRE(grammar != nullptr);
  CHECK(ends(*grammar, "<think>hm <tool_call>x"));
  CHECK(ends(*grammar, "<think>hm</think>Sure."));
  CHECK_FALSE(follows(*grammar, "<think>hm</think><tool_call>x"));
}

TEST_CASE("structural tags: text is free until a trigger, then constrained, in vLLM's and SGLang's forms") {
  TestServer server(says("x"));
  HttpClient client(server.port());
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})";
  const std::string structures = R"({"type":"structural_tag","structures":[{"begin":"<f=add>","schema":)" + schema +
                                 R"(,"end":"</f>"}],"triggers":["<f="]})";
  const auto format = [&](const std::string& type, const std::string& more) {
    return R"({"type":"structural_tag","format":{"type":")" + type +
           R"(","tags":[{"begin":"<f=add>","content":{"type":"json_schema","json_schema":)" + schema +
           R"(},"end":"</f>"}],)" + more + "}}";
  };
  const auto compiled = [&](const std::string& field) {
    const HttpReply reply = client.post("/v1/chat/completions", "{" + field + "," + kMessages + "}");
    INFO(reply.body);
    REQUIRE(reply.status == 200);
    return server.engine().last_request()->grammar;
  };
  const std::string call = R"(<f=add>{"a":1}</f>)";
  std::string quoted;
  append_json_string(quoted, structures);
  for (const std::string& field : {"\"response_format\":" + structures,
                                   R"("response_format":)" + format("triggered_tags", R"("triggers":["<f="])"),
                                   R"("structured_outputs":{"structural_tag":)" + quoted + "}"}) {
    const auto grammar = compiled(field);
    CHECK(ends(*grammar, "free <f text"));
    CHECK(ends(*grammar, "one " + call + " two " + call));
    CHECK_FALSE(follows(*grammar, "<f=sub>"));
    CHECK_FALSE(follows(*grammar, R"(<f=add>{"a":"x")"));
  }
  const auto first =
      compiled(R"("response_format":)" +
               format("triggered_tags", R"("triggers":["<f="],"stop_after_first":true,"at_least_one":true)"));
  CHECK(ends(*first, "so " + call));
  CHECK_FALSE(ends(*first, "so"));
  CHECK_FALSE(follows(*first, call + "!"));
  const auto list = compiled(R"("response_format":)" + format("tags_with_separator", R"("separator":", ")"));
  CHECK(ends(*list, call + ", " + call));
  CHECK_FALSE(follows(*list, "so"));
  CHECK(compiled(R"("response_format":{"type":"structural_tag","format":{"type":"any_text"}})") == nullptr);
  const auto param = [&](const std::string& value) {
    return refused_param(client, "/v1/chat/completions", R"({"response_format":)" + value + "," + kMessages + "}");
  };
  CHECK(param(R"({"type":"structural_tag"})") == "response_format.structures");
  CHECK(param(R"({"type":"structural_tag","structures":[{"begin":"a","schema":{}}],"triggers":["a"]})") ==
        "response_format.structures[0].end");
  CHECK(param(R"({"type":"structural_tag","structures":[{"begin":"a","schema":{},"end":"b"}],"triggers":["c"]})") ==
        "response_format");
  CHECK(param(R"({"type":"structural_tag","format":{"type":"sequence"}})") == "response_format.format.type");
}
