#include <catch2/catch.hpp>
#include <cstdlib>

#include "server/api/common/json.h"
#include "server/ops/stream_store.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

namespace {

std::vector<TokenId> letters(const Request&, std::int32_t) {
  return bytes("abcdefghij");
}

ServerOptions resumable(std::chrono::milliseconds window = 60s) {
  ServerOptions options = test_options();
  options.resume.window = window;
  return options;
}

std::string stream_request(const std::string& id, const std::string& fields = "") {
  const std::string body = R"({"prompt":"p","stream":true,"max_tokens":100})";
  return "POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-Request-Id: " + id + "\r\n" + fields +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string text_of_stream(const std::string& body) {
  std::string text;
  for (const std::string& data : sse_data(body)) {
    if (data == "[DONE]") continue;
    const Json event = Json::parse(data);
    if (!event["choices"].empty()) text += event["choices"][0]["text"].get<std::string>();
  }
  return text;
}

}  // namespace

TEST_CASE("events are numbered and given again from any of them") {
  StreamStore store;
  store.set_max_bytes(1000);
  const Clock::time_point now{1000s};
  const auto stream = store.open("alice", "r1", now);
  REQUIRE(stream);
  CHECK(stream->append("data: a\n\ndata: b\n\n") == "id: 1\ndata: a\n\nid: 2\ndata: b\n\n");
  CHECK(stream->append("data: c\n\n") == "id: 3\ndata: c\n\n");
  CHECK(stream->after(0, nullptr).events == "id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: c\n\n");
  CHECK(stream->after(2, nullptr).events == "id: 3\ndata: c\n\n");
  CHECK(stream->after(2, nullptr).last == 3);
  CHECK(stream->after(4, nullptr).lost);
  int num_woken = 0;
  CHECK(stream->after(3, [&] { ++num_woken; }).events.empty());
  stream->append("data: d\n\n");
  stream->append("data: e\n\n");
  CHECK(num_woken == 1);
  CHECK_FALSE(stream->after(5, nullptr).finished);
  CHECK_FALSE(stream->is_lost());
  stream->finish();
  CHECK(stream->after(5, nullptr).finished);
}

TEST_CASE("streams are found by key and id, and forgotten in time") {
  StreamStore store;
  store.set_max_bytes(1000);
  const Clock::time_point now{1000s};
  CHECK(store.open("alice", "r1", now));
  CHECK_FALSE(store.open("alice", "r1", now));
  CHECK(store.open("bob", "r1", now));
  CHECK(store.find("alice", "r1", now + 1h));
  CHECK_FALSE(store.find("carol", "r1", now));
  store.close("alice", "r1", now + 10s);
  CHECK(store.find("alice", "r1", now + 10s));
  CHECK_FALSE(store.find("alice", "r1", now + 11s));
  CHECK(store.find("bob", "r1", now + 11s));
}

TEST_CASE("saved streams are bounded, and their memory is freed") {
  StreamStore store;
  store.set_max_bytes(40);
  const Clock::time_point now{1000s};
  auto first = store.open("", "r1", now);
  first->append("data: 0123456789\n\n");
  CHECK_FALSE(first->after(0, nullptr).lost);
  CHECK(store.num_bytes() > 0);
  auto second = store.open("", "r2", now);
  CHECK(second->append("data: 0123456789\n\n") == "id: 1\ndata: 0123456789\n\n");
  CHECK(second->after(0, nullptr).lost);
  CHECK_FALSE(first->after(0, nullptr).lost);
  first.reset();
  store.close("", "r1", now);
  CHECK_FALSE(store.find("", "r1", now + 1s));
  CHECK(store.num_bytes() == 0);
}

TEST_CASE("a stream whose connection broke is resumed, token by token") {
  TestServer server(&letters, resumable());
  server.engine().hold(true);
  {
    HttpClient client(server.port());
    client.send(stream_request("r-1"));
    server.engine().allow_steps(3);
    CHECK(client.receive_until("id: 3\n"));
  }
  // The stream is not aborted: it waits for its client.
  server.engine().allow_steps(2);
  HttpClient again(server.port());
  again.send(stream_request("r-1", "Last-Event-ID: 2\r\n"));
  server.engine().hold(false);
  const HttpReply reply = again.receive();
  CHECK(reply.status == 200);
  CHECK(reply.fields.at("content-type").find("text/event-stream") == 0);
  CHECK(text_of_stream(reply.body) == "cdefghij");
  CHECK(sse_data(reply.body).back() == "[DONE]");
  // Resumes again after the stream's end; the connection was kept.
  again.send(stream_request("r-1", "Last-Event-ID: 5\r\n"));
  CHECK(text_of_stream(again.receive().body) == "fghij");
}

TEST_CASE("who comes back for a stream needs no second place beside it") {
  ::setenv("QUIRE_TEST_KEY_RESUME", "alice-secret", 1);
  ServerOptions options = resumable();
  ApiKeyOptions alice;
  alice.name = "alice";
  alice.env = "QUIRE_TEST_KEY_RESUME";
  alice.quota.max_concurrent = 1;
  alice.quota.requests_per_minute = 2;  // coming back is a request too
  options.security.keys = {alice};
  TestServer server(&letters, options);
  server.engine().hold(true);
  const std::string key = "Authorization: Bearer alice-secret\r\n";
  {
    HttpClient client(server.port());
    client.send(stream_request("r-6", key));
    server.engine().allow_steps(3);
    CHECK(client.receive_until("id: 3\n"));
  }
  HttpClient again(server.port());
  again.send(stream_request("r-7", key));
  CHECK(again.receive().status == 429);
  again.send(stream_request("r-6", key + "Last-Event-ID: 2\r\n"));
  server.engine().hold(false);
  CHECK(text_of_stream(again.receive().body) == "cdefghij");
}

TEST_CASE("a stream that is not taken up again ends after its window") {
  TestServer server(&letters, resumable(1ms));
  server.engine().hold(true);
  {
    HttpClient client(server.port());
    client.send(stream_request("r-2"));
    server.engine().wait_live(1);
  }
  server.engine().wait_aborted(1);
}

TEST_CASE("without the setting, the client's own id, or such a stream nothing is resumed") {
  {
    TestServer server(&letters);
    HttpClient client(server.port());
    client.send(stream_request("r-3", "Last-Event-ID: 2\r\n"));
    const HttpReply whole = client.receive();
    CHECK(text_of_stream(whole.body) == "abcdefghij");
    CHECK(whole.body.find("id: ") == std::string::npos);
  }
  TestServer server(&letters, resumable());
  HttpClient client(server.port());
  for (const std::string fields : {"Last-Event-ID: 2\r\n", "Last-Event-ID: x\r\n"}) {
    client.send(stream_request("r-4", fields));
    const HttpReply refused = client.receive();
    CHECK(refused.status == 404);
    CHECK(Json::parse(refused.body)["error"]["code"] == "stream_not_found");
  }
  client.send(stream_request("r-5"));
  CHECK(text_of_stream(client.receive().body) == "abcdefghij");
  client.send(stream_request("r-5", "Last-Event-ID: 999\r\n"));
  CHECK(client.receive().status == 404);
  client.send(stream_request("r-5", "Last-Event-ID: 0\r\n"));
  CHECK(text_of_stream(client.receive().body) == "abcdefghij");
}
