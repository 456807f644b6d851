// Conversations of the Responses API, and their compaction.
#include <catch2/catch.hpp>

#include "server/api/common/json.h"
#include "server/api/responses/conversations.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace conversations {

const std::string kConversationsPath = "/v1/conversations";

HttpReply ask_delete(HttpClient& client, const std::string& path) {
  client.send("DELETE " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
  return client.receive();
}

std::string created(HttpClient& client, const std::string& body = "{}") {
  const Json conversation = answer_to(client, kConversationsPath, body);
  CHECK(conversation["object"] == "conversation");
  return conversation["id"];
}

Json items_in(HttpClient& client, const std::string& id, const std::string& query = "?order=asc&limit=100") {
  const HttpReply reply = client.get(kConversationsPath + "/" + id + "/items" + query);
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  return Json::parse(reply.body)["data"];
}

std::vector<std::string> texts(const Json& items) {
  std::vector<std::string> list;
  for (const Json& item : items)
    list.push_back(item["role"].get<std::string>() + ": " + item["content"][0]["text"].get<std::string>());
  return list;
}

TEST_CASE("a conversation is created, read, changed and deleted") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  const std::string id = created(client, R"({"metadata":{"a":"b"},"items":[{"role":"user","content":"Hi"}]})");
  CHECK(Json::parse(client.get(kConversationsPath + "/" + id).body)["metadata"] == Json{{"a", "b"}});
  CHECK(texts(items_in(client, id)) == std::vector<std::string>{"user: Hi"});
  CHECK(answer_to(client, kConversationsPath + "/" + id, R"({"metadata":{"c":"d"}})")["metadata"] == Json{{"c", "d"}});
  const Json added = answer_to(client, kConversationsPath + "/" + id + "/items",
                               R"({"items":[{"role":"assistant","content":"Yes."},{"role":"user","content":"Why?"}]})");
  REQUIRE(added["data"].size() == 2);
  CHECK(added["first_id"] == added["data"][0]["id"]);
  CHECK(texts(items_in(client, id)) == std::vector<std::string>{"user: Hi", "assistant: Yes.", "user: Why?"});
  CHECK(texts(items_in(client, id, "?limit=1")) == std::vector<std::string>{"user: Why?"});
  const std::string item = added["data"][0]["id"];
  CHECK(Json::parse(client.get(kConversationsPath + "/" + id + "/items/" + item).body) == added["data"][0]);
  CHECK(Json::parse(ask_delete(client, kConversationsPath + "/" + id + "/items/" + item).body)["id"] == id);
  CHECK(client.get(kConversationsPath + "/" + id + "/items/" + item).status == 404);
  CHECK(texts(items_in(client, id)) == std::vector<std::string>{"user: Hi", "user: Why?"});
  CHECK(Json::parse(ask_delete(client, kConversationsPath + "/" + id).body) ==
        Json{{"id", id}, {"object", "conversation.deleted"}, {"deleted", true}});
  for (const std::string path : {"", "/items", "/items/x", "/other"})
    CHECK(client.get(kConversationsPath + "/" + id + path).status == 404);
  CHECK(ask_delete(client, kConversationsPath + "/" + id).status == 404);
}

TEST_CASE("a response reads its conversation, and adds to it") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  const std::string id = created(client, R"({"items":[{"role":"developer","content":"Be nice."}]})");
  const Json first = answer_to(client, "/v1/responses", R"({"input":"One","conversation":")" + id + R"("})");
  CHECK(first["conversation"]["id"] == id);
  answer_to(client, "/v1/responses", R"({"input":"Two","store":false,"conversation":{"id":")" + id + R"("}})");
  CHECK(prompt_text(server) ==
        "<|im_start|>developer\nBe "
        "nice.<|im_end|>\n<|im_start|>user\nOne<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
        "<|im_start|>user\nTwo<|im_end|>\n<|im_start|>assistant\n");
  CHECK(texts(items_in(client, id)) == std::vector<std::string>{"developer: Be nice.", "user: One", "assistant: Hello.",
                                                                "user: Two", "assistant: Hello."});
  const auto refused = [&](const std::string& members) {
    return refused_param(client, "/v1/responses", R"({"input":"x",)" + members + "}");
  };
  CHECK(refused(R"("conversation":"conv_0")") == "conversation");
  CHECK(refused(R"("conversation":7)") == "conversation");
  CHECK(refused(R"("conversation":{})") == "conversation");
  const std::string both =
      R"("conversation":")" + id + R"(","previous_response_id":")" + first["id"].get<std::string>();
  CHECK(refused(both + "\"") == "conversation");
  // A response's id does not name a conversation.
  CHECK(refused(R"("conversation":")" + first["id"].get<std::string>() + "\"") == "conversation");
  CHECK(client.get("/v1/responses/" + id).status == 404);
}

TEST_CASE("items that a conversation cannot hold are refused by their place") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  const std::string id = created(client);
  const std::string path = kConversationsPath + "/" + id + "/items";
  CHECK(refused_param(client, path, "{}") == "items");
  CHECK(refused_param(client, path, R"({"items":7})") == "items");
  CHECK(refused_param(client, path, R"({"items":[{"role":"user","content":"x"},{"role":"no"}]})") == "items[1].role");
  CHECK(refused_param(client, path, R"({"items":[{"type":"function_call_output","call_id":"c","output":"x"}]})") ==
        "items[0].call_id");
  CHECK(refused_param(client, kConversationsPath, R"({"metadata":7})") == "metadata");
  CHECK(items_in(client, id).empty());
}

TEST_CASE("an item's id is its own in a conversation and in an input") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  const auto refused = [&](const std::string& path, const std::string& body) {
    const HttpReply reply = client.post(path, body);
    CHECK(reply.status == 400);
    const Json error = Json::parse(reply.body)["error"];
    CHECK(error["code"] == "duplicate_item");
    return error["param"].get<std::string>();
  };
  const std::string one = R"({"id":"msg_1","role":"user","content":"One"})";
  const std::string two = R"({"id":"msg_2","role":"user","content":"Two"})";
  CHECK(refused(kConversationsPath, R"({"items":[)" + one + "," + one + "]}") == "items[1]");
  const std::string id = created(client, R"({"items":[)" + one + "]}");
  const std::string path = kConversationsPath + "/" + id + "/items";
  CHECK(refused(path, R"({"items":[)" + two + "," + one + "]}") == "items[1]");
  CHECK(texts(items_in(client, id)) == std::vector<std::string>{"user: One"});
  answer_to(client, path, R"({"items":[)" + two + "]}");
  CHECK(refused("/v1/responses", R"({"input":[)" + two + R"(],"conversation":")" + id + "\"}") == "input[0]");
  CHECK(refused("/v1/responses", R"({"input":[)" + one + "," + one + "]}") == "input[1]");
  const Json first = answer_to(client, "/v1/responses", R"({"input":[)" + one + "]}");
  const std::string again = R"(],"previous_response_id":")" + first["id"].get<std::string>() + "\"}";
  CHECK(refused("/v1/responses", R"({"input":[)" + one + again) == "input[0]");
  answer_to(client, "/v1/responses", R"({"input":[)" + two + again);
  // A deleted item's id is free again.
  CHECK(ask_delete(client, path + "/msg_1").status == 200);
  answer_to(client, path, R"({"items":[)" + one + "]}");
  CHECK(texts(items_in(client, id)) == std::vector<std::string>{"user: Two", "user: One"});
  // Two requests that add the same item at once add it once.
  auto& store = *server.server().state().responses;
  append_to_conversation(store, id, "", Json::array({Json::parse(one), {{"id", "msg_3"}, {"type", "message"}}}));
  CHECK(items_in(client, id).size() == 3);
}

TEST_CASE("a shell's output that names its call by its id has an id of its own") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  const std::string id = created(
      client,
      R"({"items":[{"type":"local_shell_call","id":"c","call_id":"c","action":{"type":"exec","command":["ls"]}},)"
      R"({"type":"local_shell_call_output","id":"c","output":"a.txt"}]})");
  const Json items = items_in(client, id);
  REQUIRE(items.size() == 2);
  CHECK(items[0]["id"] != items[1]["id"]);
  CHECK(items[1]["call_id"] == "c");
}

TEST_CASE("ids that clients chose are found however they are written in a URL") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  const std::string id = created(client, R"({"items":[{"id":"a/b \u00e9%","role":"user","content":"One"},)"
                                         R"({"id":"x+y&z","role":"user","content":"Two"}]})");
  const std::string path = kConversationsPath + "/" + id + "/items";
  CHECK(Json::parse(client.get(path + "/a%2Fb%20%C3%A9%25").body)["content"][0]["text"] == "One");
  CHECK(texts(items_in(client, id, "?order=asc&after=a%2Fb%20%C3%A9%25")) == std::vector<std::string>{"user: Two"});
  CHECK(items_in(client, id, "?order=asc&after=x+y%26z&%6cimit=%31").empty());
  CHECK(client.get(path + "?after=%zz").status == 400);
  CHECK(ask_delete(client, path + "/a/b%20%C3%A9%25").status == 200);
  CHECK(items_in(client, id).size() == 1);
  const Json chat = answer_to(client, "/v1/chat/completions",
                              R"({"messages":[{"role":"user","content":"Hi"}],"store":true,"request_id":"a/b"})");
  const std::string chat_path = "/v1/chat/completions/" + chat["id"].get<std::string>();
  CHECK(client.get(chat_path).status == 200);
  CHECK(Json::parse(client.get(chat_path + "/messages").body)["data"].size() == 1);
  CHECK(ask_delete(client, chat_path).status == 200);
  CHECK(client.get(chat_path).status == 404);
}

TEST_CASE("conversations are bounded with the stored responses, and the one unused for longest goes first") {
  ServerOptions options = test_options();
  options.responses.max_count = 3;
  TestServer server(says("Hello."), options);
  HttpClient client(server.port());
  const std::string first = created(client);
  const std::string second = created(client);
  const std::string third = created(client);
  CHECK(client.get(kConversationsPath + "/" + first).status == 200);
  const std::string fourth = created(client);
  CHECK(client.get(kConversationsPath + "/" + second).status == 404);
  CHECK(client.get(kConversationsPath + "/" + first).status == 200);
  CHECK(server.server().state().responses->count() == 3);

  // An entry that outgrows the whole store is dropped, and no other entry with it.
  ResponseStore store({8, 4000});
  store.put({"conv_1", "", "", "{}", {}, {}});
  store.put({"conv_2", "", "", "{}", {}, {}});
  const auto entry = store.find("conv_1", "");
  CHECK(store.replace(entry, {"conv_1", "", "", std::string(4000, ' '), {}, {}}));
  CHECK(store.find("conv_1", "") == nullptr);
  CHECK(store.find("conv_2", "") != nullptr);
  CHECK(!store.replace(entry, {"conv_1", "", "", "{}", {}, {}}));
}

TEST_CASE(
    "what is stored is found and cut into pages without time to read it, and not read where there is too little") {
  ResponseStore store({8, 64 << 20});
  const std::string large(WorkLimit::kQuickBytes, 'x');
  StoredResponse stored{"conv_1", "", "", R"({"id":"conv_1"})", {}, {}};
  stored.input = store_items({{{"id", "msg_1"}, {"type", "message"}, {"content", large}},
                              {{"id", "fc_1"}, {"type", "function_call"}, {"call_id", "call_1"}},
                              {{"id", "msg_2"}, {"type", "message"}, {"content", "y"}}});
  CHECK(stored.input[1]->call_id == "call_1");
  store.put(stored);
  const ModelTable models({});
  Call call;
  call.responses = std::shared_ptr<ResponseStore>(std::shared_ptr<void>(), &store);
  const auto got = [&](const std::string& rest, const std::string& query = "") {
    call.path = kConversationsPath + "/conv_1" + rest;
    call.query = query;
    return get_conversation(models, call);
  };
  const auto is_interrupted = [](const auto& answer) { return !answer && answer.error().code == WorkLimit::kCode; };
  call.limit = WorkLimit(std::chrono::hours(1), {});
  CHECK(got("/items/msg_2").has_value());
  CHECK(got("/items", "limit=2").has_value());
  CHECK(is_interrupted(got("/items/msg_1")));
  CHECK(is_interrupted(got("/items", "limit=3")));
  CHECK(got("/items/none").error().code == "item_not_found");
  call.limit = {};
  std::string page;
  (*got("/items", "limit=3"))->finish(page);
  CHECK(Json::parse(page)["data"][2]["content"] == large);
  CHECK(Json::parse(page)["has_more"] == false);
}

TEST_CASE("a stored response is whole again with the items of its output") {
  StoredResponse stored{"resp_1", "", "", R"({"id":"resp_1","output":[],"x":1})", {}, {}};
  stored.output = store_items({{{"id", "msg_1"}}, {{"id", "msg_2"}}});
  stored.output_at = stored.body.find(']');
  CHECK(stored.whole_body() == R"({"id":"resp_1","output":[{"id":"msg_1"},{"id":"msg_2"}],"x":1})");
}

TEST_CASE("a compaction is the users' messages and the model's summary, and is continued") {
  TestServer server(says("They said hi."));
  HttpClient client(server.port());
  const Json compaction = answer_to(client, "/v1/responses/compact",
                                    R"({"instructions":"Be nice.","input":[{"role":"user","content":"Hi"},)"
                                    R"({"role":"assistant","content":"Hello."},{"role":"user","content":"Go on"}]})");
  CHECK(compaction["object"] == "response.compaction");
  CHECK(prompt_text(server).find("Go on\n\nSummarize this conversation") != std::string::npos);
  REQUIRE(compaction["output"].size() == 3);
  CHECK(compaction["output"][0]["content"][0]["text"] == "Hi");
  CHECK(compaction["output"][1]["content"][0]["text"] == "Go on");
  CHECK(compaction["output"][2]["type"] == "compaction");
  CHECK(compaction["usage"]["output_tokens"].get<int>() > 0);

  Json next{{"input", compaction["output"]}};
  next["input"].push_back({{"role", "user"}, {"content", "And now?"}});
  answer_to(client, "/v1/responses", dump_json(next));
  CHECK(prompt_text(server) ==
        "<|im_start|>user\nHi\n\nGo on\n\nSummary of the conversation so far:\nThey said hi.\n\nAnd now?<|im_end|>\n"
        "<|im_start|>assistant\n");
  // A chain of responses is compacted by its last one's id.
  const Json response = answer_to(client, "/v1/responses", R"({"input":"Hi"})");
  const Json chained = answer_to(client, "/v1/responses/compact",
                                 R"({"previous_response_id":")" + response["id"].get<std::string>() + "\"}");
  CHECK(chained["output"][0]["content"][0]["text"] == "Hi");
  const auto refused = [&](const std::string& path, const std::string& body) {
    return refused_param(client, path, body);
  };
  CHECK(refused("/v1/responses", R"({"input":[{"type":"compaction","encrypted_content":"gAAA"}]})") ==
        "input[0].encrypted_content");
  CHECK(refused("/v1/responses/compact", R"({"input":"x","stream":true})") == "stream");
}

}  // namespace conversations
