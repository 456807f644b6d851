#include <catch2/catch.hpp>

#include "server/api/common/json.h"
#include "server/api/responses/response_items.h"
#include "server/state/live_operations.h"
#include "server/wire/response.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

Json ask(HttpClient& client, const std::string& body) {
  return answer_to(client, "/v1/responses", body);
}

std::string refused(HttpClient& client, const std::string& body) {
  return refused_param(client, "/v1/responses", body);
}

std::vector<Json> events_of(const std::string& stream) {
  std::vector<Json> events;
  for (const std::string& data : sse_data(stream))
    events.push_back(Json::parse(data));
  return events;
}

HttpReply ask_delete(HttpClient& client, const std::string& path) {
  client.send("DELETE " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
  return client.receive();
}

// Rebuilds the items from a stream's events alone, as a client does. Checks numbering and nesting on the way.
Json replay(const std::vector<Json>& events) {
  Json items = Json::array();
  std::int64_t next = 0;
  for (const Json& event : events) {
    CHECK(event["sequence_number"] == next++);
    const auto& type = event["type"].get_ref<const std::string&>();
    if (!event.contains("output_index")) continue;
    const auto index = event["output_index"].get<std::size_t>();
    if (type == "response.output_item.added") {
      CHECK(index == items.size());
      CHECK(event["item"]["status"] == "in_progress");
      items.push_back(event["item"]);
      continue;
    }
    REQUIRE(index + 1 == items.size());
    Json& item = items[index];
    if (type == "response.output_item.done") {
      item["status"] = event["item"]["status"];
      // Made at the item's end, so told by its last event only.
      if (event["item"].contains("encrypted_content")) item["encrypted_content"] = event["item"]["encrypted_content"];
      CHECK(item == event["item"]);
      continue;
    }
    CHECK(event["item_id"] == item["id"]);
    Json* part = item.contains("content") && !item["content"].empty()   ? &item["content"].back()
                 : item.contains("summary") && !item["summary"].empty() ? &item["summary"].back()
                                                                        : nullptr;
    const char* const member = item["type"] == "function_call" ? "arguments" : "text";
    Json& target = part != nullptr ? *part : item;
    if (type == "response.content_part.added") item["content"].push_back(event["part"]);
    if (type == "response.reasoning_summary_part.added") item["summary"].push_back(event["part"]);
    if (type.find(".delta") != std::string::npos)
      target[member] = target[member].get<std::string>() + event["delta"].get<std::string>();
    if (type == "response.function_call_arguments.done" || type.find("text.done") != std::string::npos)
      CHECK(event[member] == target[member]);
    if (type.find("part.done") != std::string::npos) CHECK(event["part"] == target);
  }
  return items;
}

const std::string kResponsesTools =
    R"("tools":[{"type":"function","name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}])";

}  // namespace

TEST_CASE("a GET of the responses that opens no WebSocket is answered by 426") {
  TestServer server;
  HttpClient client(server.port());
  const HttpReply reply = client.get("/v1/responses");
  CHECK(reply.status == 426);
  CHECK(reply.fields.at("upgrade") == "websocket");
  CHECK(reply.fields.at("sec-websocket-version") == "13");
  CHECK(std::string(reason_phrase(426)) == "Upgrade Required");
}

TEST_CASE("a response is a message item with its usage") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  const Json body = ask(client, R"({"input":"Hi","instructions":"Be nice.","metadata":{"a":"b"}})");
  CHECK(body["object"] == "response");
  CHECK(body["status"] == "completed");
  CHECK(body["model"] == "fake");
  CHECK(body["instructions"] == "Be nice.");
  CHECK(body["metadata"] == Json{{"a", "b"}});
  REQUIRE(body["output"].size() == 1);
  CHECK(body["output"][0]["type"] == "message");
  CHECK(body["output"][0]["content"][0]["text"] == "Hello.");
  CHECK(body["usage"]["total_tokens"] ==
        body["usage"]["input_tokens"].get<int>() + body["usage"]["output_tokens"].get<int>());
  CHECK(prompt_text(server) ==
        "<|im_start|>system\nBe nice.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("a stream's events add up to the response") {
  TestServer server(says("Sure.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 12}}\n</tool_call>"));
  HttpClient client(server.port());
  const HttpReply reply = client.post("/v1/responses", R"({"stream":true,"input":"Hi",)" + kResponsesTools + "}");
  REQUIRE(reply.status == 200);
  const auto events = events_of(reply.body);
  CHECK(events[0]["type"] == "response.created");
  CHECK(events[1]["type"] == "response.in_progress");
  CHECK(events.back()["type"] == "response.completed");
  const Json items = replay(events);
  CHECK(events.back()["response"]["output"] == items);
  REQUIRE(items.size() == 2);
  CHECK(items[0]["content"][0]["text"].get<std::string>().rfind("Sure.", 0) == 0);
  CHECK(items[1]["type"] == "function_call");
  CHECK(items[1]["name"] == "add");
  CHECK(Json::parse(items[1]["arguments"].get<std::string>()) == Json{{"a", 12}});
}

TEST_CASE("a response that is cut is incomplete, and so is its last item") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  const Json body = ask(client, R"({"input":"Hi","max_output_tokens":3})");
  CHECK(body["status"] == "incomplete");
  CHECK(body["incomplete_details"] == Json{{"reason", "max_output_tokens"}});
  CHECK(body["output"][0]["status"] == "incomplete");
  const auto events =
      events_of(client.post("/v1/responses", R"({"stream":true,"input":"Hi","max_output_tokens":3})").body);
  CHECK(events.back()["type"] == "response.incomplete");
  CHECK(replay(events)[0]["content"][0]["text"] == "Hel");
}

TEST_CASE("an empty answer is an empty message") {
  TestServer server(says(""));
  HttpClient client(server.port());
  CHECK(ask(client, R"({"input":"Hi"})")["output"][0]["content"][0]["text"] == "");
}

TEST_CASE("reasoning, white space, text and calls become items in their order") {
  for (const bool summarises : {false, true}) {
    ResponseEvents events(true);
    const ResponseTools no_tools;
    ResponseItems items(events, {summarises, true}, no_tools);
    std::string out;
    const auto add = [&](std::string content, std::string reasoning, std::vector<ToolCallDelta> calls) {
      items.add(OutputDelta{std::move(content), std::move(reasoning), std::move(calls)}, nullptr, out);
    };
    add("", "\n", {});
    add("", "I thi", {});
    add("", "nk.", {});
    add("\n\n", "", {});
    add("", "", {{0, "call_1", "f", ""}});
    add("", "", {{0, "", "", "{\"a\""}});
    add("", "", {{0, "", "", ":1}"}, {1, "call_2", "g", "{}"}});
    add("\n", "", {});
    add("Done.", "", {});
    items.finish(true, out);
    const Json list = items.items();
    CHECK(replay(events_of(out)) == list);
    REQUIRE(list.size() == 4);
    CHECK(list[0][summarises ? "summary" : "content"][0]["text"] == "\nI think.");
    CHECK(list[0]["summary"].size() == (summarises ? 1 : 0));
    CHECK(list[0]["encrypted_content"] == "quire-reasoning:\nI think.");
    CHECK(list[1]["arguments"] == "{\"a\":1}");
    CHECK(list[2]["call_id"] == "call_2");
    CHECK(list[3]["content"][0]["text"] == "\nDone.");
    CHECK(list[2]["status"] == "completed");
    CHECK(list[3]["status"] == "incomplete");
  }
}

TEST_CASE("items of the history become turns of the conversation") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  ask(client, R"({"instructions":"One.","input":[
    {"role":"developer","content":"Two."},
    {"type":"message","role":"user","content":[{"type":"input_text","text":"Add 1."}]},
    {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
    {"type":"function_call","id":"fc_1","call_id":"c1","name":"add","arguments":"{\"a\": 1}"},
    {"type":"function_call","call_id":"c2","name":"add","arguments":""},
    {"type":"function_call_output","call_id":"c1","output":"2"},
    {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"3"}]},
    {"role":"assistant","content":[{"type":"output_text","text":"Five.","annotations":[]}]},
    {"role":"user","content":"Thanks."}]})");
  const std::string prompt = prompt_text(server);
  CHECK(prompt.find("system\nOne.\n\nTwo.<|im_end|>") != std::string::npos);
  CHECK(prompt.find("user\nAdd 1.<|im_end|>") != std::string::npos);
  CHECK(prompt.find("assistant\nFive.<|im_end|>") != std::string::npos);
  const auto count = [&](const std::string& text) {
    std::size_t found = 0;
    for (std::size_t at = prompt.find(text); at != std::string::npos; at = prompt.find(text, at + 1))
      ++found;
    return found;
  };
  CHECK(count("<|im_start|>assistant") == 3);  // the calls, the text, the turn to come
}

TEST_CASE("a response continues the one before it") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  const std::string first = ask(client, R"({"input":"Hi","instructions":"Be nice."})")["id"];
  const Json second = ask(client, R"({"input":"And now?","previous_response_id":")" + first + "\"}");
  CHECK(second["previous_response_id"] == first);
  CHECK(prompt_text(server) ==
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
        "<|im_start|>user\nAnd now?<|im_end|>\n<|im_start|>assistant\n");
  const std::string id = second["id"];
  CHECK(Json::parse(client.get("/v1/responses/" + id).body) == second);
  const Json items = Json::parse(client.get("/v1/responses/" + id + "/input_items?order=asc").body);
  REQUIRE(items["data"].size() == 3);
  CHECK(items["data"][0]["content"][0]["text"] == "Hi");
  CHECK(items["data"][2]["content"][0]["text"] == "And now?");
  CHECK(items["has_more"] == false);
  const Json page = Json::parse(client.get("/v1/responses/" + id + "/input_items?limit=2").body);
  CHECK(page["data"][0] == items["data"][2]);
  CHECK(page["has_more"] == true);
  const std::string after = page["last_id"];
  const Json rest = Json::parse(client.get("/v1/responses/" + id + "/input_items?after=" + after).body);
  REQUIRE(rest["data"].size() == 1);
  CHECK(rest["data"][0] == items["data"][0]);
  CHECK(client.get("/v1/responses/" + id + "/input_items?limit=0").status == 400);
  CHECK(ask_delete(client, "/v1/responses/" + first).status == 200);
  CHECK(refused(client, R"({"input":"x","previous_response_id":")" + id + "\"}") == "previous_response_id");
}

TEST_CASE("items of an earlier response can be referred to") {
  TestServer server(says("Sure.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"));
  HttpClient client(server.port());
  const Json output = ask(client, R"({"input":"Hi",)" + kResponsesTools + "}")["output"];
  const std::string text = output[0]["id"];
  const std::string call = output[1]["id"];
  const std::string call_id = output[1]["call_id"];
  const auto with = [&](const std::string& reference, const std::string& answered) {
    return R"({"input":[{"role":"user","content":"Hi"},{"id":")" + text + R"("},{"type":"item_reference","id":")" +
           reference + R"("},{"type":"function_call_output","output":"2","call_id":")" + answered + "\"}]}";
  };
  ask(client, with(call, call_id));
  CHECK(prompt_text(server).find("assistant\nSure.") != std::string::npos);
  CHECK(refused(client, with("fc_0", call_id)) == "input[2].id");
  CHECK(refused(client, with(call, "call_0")) == "input[3].call_id");
}

TEST_CASE("a conversation that is too long loses its oldest turns where truncation is automatic") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const std::string filler(700, 'x');
  std::string turns;
  for (const char* name : {"one", "two", "three", "four"}) {
    turns += std::string(turns.empty() ? "" : ",") + R"({"role":"user","content":")" + name + filler +
             R"("},{"role":"assistant","content":")" + name + "\"}";
  }
  const std::string body = R"({"instructions":"Stay.","input":[)" + turns + R"(,{"role":"user","content":"last"}])";
  CHECK(refused(client, body + "}") == "input");
  CHECK(refused(client, body + R"(,"truncation":"disabled"})") == "input");
  ask(client, body + R"(,"truncation":"auto"})");
  const std::string prompt = prompt_text(server);
  CHECK(prompt.find("system\nStay.") != std::string::npos);
  CHECK(prompt.find("two") == std::string::npos);
  CHECK(prompt.find("user\nthree") != std::string::npos);
  CHECK(prompt.find("user\nlast") != std::string::npos);
}

TEST_CASE("a request's tokens are counted as they would be computed") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const std::string body = R"({"instructions":"Be nice.","input":"Hi",)" + kResponsesTools + "}";
  const Json count = Json::parse(client.post("/v1/responses/input_tokens", body).body);
  CHECK(count["object"] == "response.input_tokens");
  CHECK(count["input_tokens"] == ask(client, body)["usage"]["input_tokens"]);
}

TEST_CASE("what is not to be stored, or was deleted, is not found") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  const Json kept = ask(client, R"({"input":"Hi"})");
  const Json unkept = ask(client, R"({"input":"Hi","store":false})");
  CHECK(kept["store"] == true);
  CHECK(unkept["store"] == false);
  const std::string path = "/v1/responses/";
  CHECK(client.get(path + unkept["id"].get<std::string>()).status == 404);
  const std::string id = kept["id"];
  CHECK(client.get(path + id).status == 200);
  CHECK(client.get(path + id + "/output_items").status == 404);
  CHECK(client.get(path + id + "?stream=true").status == 400);
  CHECK(client.post(path + id + "/cancel", "").status == 400);
  CHECK(client.post(path + "resp_0/cancel", "").status == 404);
  CHECK(Json::parse(ask_delete(client, path + id).body) == Json{{"id", id}, {"object", "response"}, {"deleted", true}});
  CHECK(client.get(path + id).status == 404);
  CHECK(ask_delete(client, path + id).status == 404);
}

TEST_CASE("a server that stores nothing says so") {
  ServerOptions options = test_options();
  options.responses.max_count = 0;
  TestServer server(says("Hello."), options);
  HttpClient client(server.port());
  CHECK(ask(client, R"({"input":"Hi"})")["store"] == false);
  CHECK(refused(client, R"({"input":"Hi","store":true})") == "store");
}

TEST_CASE("the store is bounded in count and bytes, and forgets what was unused for longest") {
  const auto response = [](std::string id, std::size_t size = 10) {
    return StoredResponse{id, "alice", "", std::string(size, 'x'), {}, {id + "-item"}};
  };
  ResponseStore store({3, 8000});
  for (const char* id : {"a", "b", "c"})
    store.put(response(id));
  CHECK(store.find("a", "alice") != nullptr);
  store.put(response("d"));
  CHECK(store.find("b", "alice") == nullptr);
  CHECK(store.find_item("b-item", "alice") == nullptr);
  CHECK(store.find_item("a-item", "alice")->id == "a");
  CHECK(store.count() == 3);
  store.put(response("e", 6000));
  CHECK(store.find("e", "alice") != nullptr);
  CHECK(store.count() < 4);
  store.put(response("f", 9000));
  CHECK(store.find("f", "alice") == nullptr);
  CHECK(store.find("e", "alice") != nullptr);
}

TEST_CASE("one key's responses are none of another's") {
  ResponseStore store({8, 1 << 20});
  store.put({"a", "alice", "", "{}", {}, {"item"}});
  store.put({"b", "bob", "a", "{}", {}, {}});
  CHECK(store.find("a", "bob") == nullptr);
  CHECK(store.find_item("item", "bob") == nullptr);
  CHECK(store.conversation("b", "bob").empty());
  CHECK_FALSE(store.erase("a", "bob"));
  CHECK(store.erase("a", "alice"));
}

TEST_CASE("a chat is stored where that is asked for, whole and streamed") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  const std::string path = "/v1/chat/completions";
  const auto chat = [&](const std::string& fields) {
    return client.post(
        path, R"({"messages":[{"role":"system","content":"Be nice."},{"role":"user","content":"Hi"}])" + fields + "}");
  };
  CHECK(client.get(path + "/" + Json::parse(chat("").body)["id"].get<std::string>()).status == 404);
  const Json whole = Json::parse(chat(R"(,"store":true,"logprobs":true)").body);
  const std::string id = whole["id"];
  CHECK(Json::parse(client.get(path + "/" + id).body) == whole);
  const auto data = sse_data(chat(R"(,"store":true,"logprobs":true,"stream":true)").body);
  Json streamed = Json::parse(client.get(path + "/" + Json::parse(data[0])["id"].get<std::string>()).body);
  CHECK(streamed["choices"] == whole["choices"]);
  const Json messages = Json::parse(client.get(path + "/" + id + "/messages?limit=1").body);
  CHECK(messages["data"][0]["content"] == "Be nice.");
  CHECK(messages["has_more"] == true);
  CHECK(client.get("/v1/responses/" + id).status == 404);
  CHECK(refused(client, R"({"input":"x","previous_response_id":")" + id + "\"}") == "previous_response_id");
  CHECK(Json::parse(ask_delete(client, path + "/" + id).body)["deleted"] == true);
  CHECK(client.get(path + "/" + id).status == 404);
}

TEST_CASE("formats and tools constrain a response as they do a chat") {
  TestServer server(says("x"));
  HttpClient client(server.port());
  const auto grammar = [&](const std::string& fields) {
    ask(client, R"({"input":"Hi",)" + fields + "}");
    return server.engine().last_request()->grammar;
  };
  CHECK(grammar(R"("text":{"format":{"type":"text"}})") == nullptr);
  CHECK(grammar(R"("text":{"format":{"type":"json_object"}})") != nullptr);
  CHECK(grammar(R"("text":{"format":{"type":"json_schema","name":"n","schema":{"const":"hi"}}})") != nullptr);
  CHECK(grammar(kResponsesTools) != nullptr);  // optional calls are constrained too
  CHECK(grammar(kResponsesTools + R"(,"tool_choice":"required")") != nullptr);
  CHECK(grammar(kResponsesTools + R"(,"tool_choice":{"type":"function","name":"add"})") != nullptr);
  CHECK(
      grammar(
          kResponsesTools +
          R"(,"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"add"}]})") !=
      nullptr);
}

TEST_CASE("what a response cannot honour is refused with its place") {
  TestServer server(says("x"));
  HttpClient client(server.port());
  const auto param = [&](const std::string& fields) { return refused(client, "{" + fields + "}"); };
  CHECK(param("") == "input");
  CHECK(param(R"("input":5)") == "input");
  CHECK(param(R"("input":[5])") == "input[0]");
  CHECK(param(R"("input":[{}])") == "input[0].role");
  CHECK(param(R"("input":[{"role":"user"}])") == "input[0].content");
  CHECK(param(R"("input":[{"role":"robot","content":"x"}])") == "input[0].role");
  CHECK(param(R"("input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}])") ==
        "input[0].content[0].type");
  CHECK(param(R"("input":[{"type":"function_call","name":"f","arguments":"{}"}])") == "input[0].call_id");
  CHECK(param(R"("input":[{"type":"function_call_output","call_id":"c","output":"x"}])") == "input[0].call_id");
  CHECK(param(R"("input":[{"type":"reasoning","summary":[{"type":"x"}]}])") == "input[0].summary[0]");
  const std::string in = R"("input":"x",)";
  CHECK(param(in + R"("tools":[{"type":"function","name":"a b"}])") == "tools[0].name");
  CHECK(param(in + R"("tools":[{"type":"function","name":"a"},{"type":"function","name":"a"}])") == "tools[1].name");
  CHECK(param(in + kResponsesTools + R"(,"tool_choice":{"type":"function","name":"sub"})") == "tool_choice");
  CHECK(param(in + kResponsesTools + R"(,"tool_choice":{"type":"web_search_preview"})") == "tool_choice");
  CHECK(
      param(in + R"("tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]})") ==
      "tool_choice");
  CHECK(param(in + R"("text":{"format":{"type":"json_schema","name":"n"}})") == "text.format.schema");
  CHECK(param(in + R"("text":{"format":{"type":"json_schema","schema":{}}})") == "text.format.name");
  CHECK(param(in + R"("text":{"format":{"type":"json_schema","name":"n","schema":{"type":"hiccup"}}})")
            .rfind("text.format.schema", 0) == 0);
  CHECK(param(in + R"("text":{"format":{"type":"json_object"}},"guided_regex":"a")") == "text.format");
  CHECK(param(in + R"("reasoning":{"effort":"huge"})") == "reasoning.effort");
  CHECK(param(in + R"("include":["everything"])") == "include[0]");
  CHECK(param(in + R"("max_output_tokens":0)") == "max_output_tokens");
  CHECK(param(in + R"("previous_response_id":"resp_0")") == "previous_response_id");
  CHECK(param(R"("input":")" + std::string(5000, 'x') + "\"") == "input");
}

TEST_CASE("a response that fails in its stream says so in both of the forms that clients read") {
  TestServer server([](const Request& request, std::int32_t) {
    return std::vector<TokenId>(static_cast<std::size_t>(request.sampling.max_tokens) + 1, TokenId{'x'});
  });
  HttpClient client(server.port());
  server.engine().hold(true);
  const std::string body = R"({"stream":true,"input":"Hi","max_output_tokens":1000})";
  client.send("POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  server.engine().wait_live(1);
  server.engine().allow_steps(1);
  REQUIRE(client.receive_until("output_text.delta"));
  server.server().state().live.cut(
      Error{ErrorKind::kUnavailable, "The server is shutting down", "server_draining", "", std::nullopt});
  const auto events = events_of(client.receive().body);
  REQUIRE(events.size() > 3);
  const Json& error = events[events.size() - 2];
  CHECK(error["type"] == "error");
  CHECK(error["code"] == "server_draining");
  CHECK(error["error"]["message"] == "The server is shutting down");
  CHECK(events.back()["type"] == "response.failed");
  CHECK(events.back()["response"]["status"] == "failed");
  CHECK(events.back()["response"]["error"]["code"] == "server_error");
}
