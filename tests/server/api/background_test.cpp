// Responses in the background: polled, streamed again, cancelled, deleted, cut by a drain; nothing of them depends on
// the connection that began them.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "server/api/common/json.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace background {

const std::string kPath = "/v1/responses/";

Json begin(HttpClient& client, const std::string& members = R"("input":"Hi")") {
  return answer_to(client, "/v1/responses", R"({"background":true,)" + members + "}");
}

Json read(HttpClient& client, const std::string& id) {
  const HttpReply reply = client.get(kPath + id);
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  return Json::parse(reply.body);
}

// Waits for the run's end by reading its stream, which ends with it.
std::vector<Json> events_after(HttpClient& client, const std::string& id, const std::string& query) {
  const HttpReply reply = client.get(kPath + id + query);
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  std::vector<Json> events;
  for (const std::string& data : sse_data(reply.body))
    events.push_back(Json::parse(data));
  return events;
}

Json read_until(HttpClient& client, const std::string& id, const std::string& status) {
  Json body = read(client, id);
  for (int i = 0; i < 100'000 && body["status"] != status; ++i)
    body = read(client, id);
  CHECK(body["status"] == status);
  return body;
}

TEST_CASE("a background response is queued, in progress and completed, and its connection may close") {
  TestServer server(says("Hello."));
  server.engine().hold(true);
  Json begun;
  {
    HttpClient client(server.port());
    begun = begin(client);
  }
  CHECK(begun["status"] == "queued");
  CHECK(begun["background"] == true);
  CHECK(begun["output"].empty());
  HttpClient other(server.port());
  const std::string id = begun["id"];
  CHECK(read(other, id)["status"] == "queued");
  server.engine().wait_live(1);
  server.engine().allow_steps(1);
  read_until(other, id, "in_progress");
  server.engine().hold(false);
  const Json body = read_until(other, id, "completed");
  CHECK(body["output"][0]["content"][0]["text"] == "Hello.");
  CHECK(body["usage"]["output_tokens"].get<int>() > 0);
  CHECK(server.server().state().background->count() == 0);
  // A finished response can be continued like any other, and not be cancelled any more.
  const Json next = answer_to(other, "/v1/responses", R"({"input":"More","previous_response_id":")" + id + "\"}");
  CHECK(next["status"] == "completed");
  CHECK(Json::parse(other.post(kPath + id + "/cancel", "").body)["status"] == "completed");
}

TEST_CASE("the input of a background response is read while it is made, and nothing continues it yet") {
  TestServer server(says("Hello."));
  server.engine().hold(true);
  HttpClient client(server.port());
  const std::string id =
      begin(client, R"("input":[{"role":"user","content":"One"},{"role":"user","content":"Two"}])")["id"];
  server.engine().wait_live(1);
  const HttpReply items = client.get(kPath + id + "/input_items?order=asc");
  INFO(items.body);
  REQUIRE(items.status == 200);
  const Json list = Json::parse(items.body)["data"];
  REQUIRE(list.size() == 2);
  CHECK(list[1]["content"][0]["text"] == "Two");
  CHECK(read(client, id)["status"] == "queued");
  const std::string continues = R"({"input":"x","previous_response_id":")" + id + "\"}";
  const HttpReply early = client.post("/v1/responses", continues);
  CHECK(early.status == 400);
  CHECK(Json::parse(early.body)["error"]["code"] == "previous_response_not_completed");
  server.engine().hold(false);
  read_until(client, id, "completed");
  CHECK(Json::parse(client.get(kPath + id + "/input_items?order=asc").body)["data"] == list);
  CHECK(client.post("/v1/responses", continues).status == 200);
  client.send("DELETE " + kPath + id + " HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(client.receive().status == 200);
  CHECK(client.get(kPath + id + "/input_items").status == 404);
}

TEST_CASE("the events of a background response are read again from any of them on") {
  TestServer server(says("Hello."));
  server.engine().hold(true);
  std::string id;
  {
    HttpClient client(server.port());
    const std::string body = R"({"background":true,"stream":true,"input":"Hi"})";
    client.send("POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    REQUIRE(client.receive_until("response.queued"));
    server.engine().wait_live(1);
  }
  HttpClient client(server.port());
  id = server.engine().last_request()->id;
  id = id.substr(0, id.rfind('-'));
  server.engine().hold(false);
  INFO(id);
  const auto all = events_after(client, id, "?stream=true");
  REQUIRE(all.size() > 5);
  CHECK(all[0]["type"] == "response.created");
  CHECK(all[0]["response"]["status"] == "queued");
  CHECK(all[1]["type"] == "response.queued");
  CHECK(all[2]["type"] == "response.in_progress");
  CHECK(all.back()["type"] == "response.completed");
  for (std::size_t after = 0; after < all.size(); ++after) {
    CHECK(all[after]["sequence_number"] == after);
    const auto rest = events_after(client, id, "?stream=true&starting_after=" + std::to_string(after));
    CHECK(rest == std::vector<Json>(all.begin() + static_cast<std::ptrdiff_t>(after) + 1, all.end()));
  }
  for (const char* query : {"?stream=true&starting_after=9999", "?starting_after=1", "?stream=true&starting_after=x",
                            "?stream=true&starting_after=-1", "?stream=true&starting_after=99999999999999999999"}) {
    INFO(query);
    CHECK(client.get(kPath + id + query).status == 400);
  }
}

TEST_CASE("a background response is cancelled in the queue and while it is made, and stays so") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  server.engine().hold(true);
  for (const int steps : {0, 2}) {
    const std::string id = begin(client)["id"];
    server.engine().wait_live(1);
    if (steps > 0) {
      server.engine().allow_steps(steps);
      read_until(client, id, "in_progress");
    }
    const Json cancelled = Json::parse(client.post(kPath + id + "/cancel", "").body);
    CHECK(cancelled["status"] == "cancelled");
    server.engine().wait_live(0);
    CHECK(read(client, id)["status"] == "cancelled");
    CHECK(Json::parse(client.post(kPath + id + "/cancel", "").body)["status"] == "cancelled");
  }
  CHECK(client.post(kPath + "resp_0/cancel", "").status == 404);
}

TEST_CASE("a background response that is deleted ends, and is not found") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  server.engine().hold(true);
  const std::string id = begin(client)["id"];
  server.engine().wait_live(1);
  client.send("DELETE " + kPath + id + " HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(client.receive().status == 200);
  CHECK(client.get(kPath + id).status == 404);
  server.engine().wait_live(0);
  CHECK(client.get(kPath + id).status == 404);
}

TEST_CASE("a background response belongs to its key, and counts among what the key may run") {
  ServerOptions options = test_options();
  for (const char* name : {"alice", "bob"}) {
    const std::string variable = std::string("QUIRE_TEST_KEY_BACKGROUND_") + name;
    ::setenv(variable.c_str(), (std::string(name) + "-secret").c_str(), 1);
    ApiKeyOptions key;
    key.name = name;
    key.env = variable;
    key.quota.max_concurrent = 1;
    options.security.keys.push_back(key);
  }
  TestServer server(says("Hello."), options);
  server.engine().hold(true);
  HttpClient client(server.port());
  const auto ask = [&](const std::string& line, const std::string& key, const std::string& body) {
    client.send(line + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + key +
                "-secret\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body);
    return client.receive();
  };
  const HttpReply begun = ask("POST /v1/responses", "alice", R"({"background":true,"input":"Hi"})");
  REQUIRE(begun.status == 200);
  const std::string id = Json::parse(begun.body)["id"];
  CHECK(ask("GET " + kPath + id, "bob", "").status == 404);
  CHECK(ask("POST " + kPath + id + "/cancel", "bob", "").status == 404);
  CHECK(ask("DELETE " + kPath + id, "bob", "").status == 404);
  CHECK(ask("POST /v1/responses", "alice", R"({"background":true,"input":"Hi"})").status == 429);
  CHECK(ask("GET " + kPath + id, "alice", "").status == 200);
  // Cancelling takes no place of its own, and frees the held one.
  CHECK(ask("POST " + kPath + id + "/cancel", "alice", "").status == 200);
  server.engine().wait_live(0);
}

TEST_CASE("a drain waits for a background response, and cuts it at its deadline") {
  ServerOptions options = test_options();
  options.drain.deadline = std::chrono::milliseconds(0);
  TestServer server(says("Hello."), options);
  server.engine().hold(true);
  {
    HttpClient client(server.port());
    begin(client);
  }
  server.engine().wait_live(1);
  server.server().stop();
  CHECK(server.server().wait() == 1);
}

TEST_CASE("a background response that nothing would read is refused") {
  TestServer server(says("Hello."));
  HttpClient client(server.port());
  CHECK(refused_param(client, "/v1/responses", R"({"background":true,"store":false,"input":"Hi"})") == "background");
}

}  // namespace background
