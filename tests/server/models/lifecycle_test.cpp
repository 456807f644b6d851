#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <thread>

#include "server/api/common/json.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

// Ends only at max_tokens.
std::vector<TokenId> endless(const Request& request, std::int32_t) {
  return std::vector<TokenId>(static_cast<std::size_t>(request.sampling.max_tokens) + 1, TokenId{'x'});
}

const std::string kStream = R"({"prompt":"a","stream":true,"max_tokens":1000})";

std::string post(const std::string& body) {
  return "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace

TEST_CASE("a client that goes away takes its request out of the engine") {
  TestServer server(&endless);
  server.engine().hold(true);
  {
    HttpClient streaming(server.port());
    HttpClient waiting(server.port());
    streaming.send(post(kStream));
    waiting.send(post(R"({"prompt":"a","max_tokens":1000})"));
    server.engine().wait_live(2);
  }
  server.engine().wait_aborted(2);
  server.engine().wait_live(0);
}

TEST_CASE("a client that sends more while it waits is not taken for gone") {
  TestServer server;
  server.engine().hold(true);
  HttpClient client(server.port());
  client.send(post(R"({"prompt":"abc"})"));
  server.engine().wait_live(1);
  client.send("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n");
  HttpClient other(server.port());
  CHECK(other.get("/livez").status == 200);
  server.engine().hold(false);
  CHECK(Json::parse(client.receive().body)["choices"][0]["text"] == "abc");
  CHECK(client.receive().status == 200);
}

TEST_CASE("a stop string ends the request in the engine") {
  TestServer server(&endless);
  HttpClient client(server.port());
  CHECK(client.post("/v1/completions", R"({"prompt":"a","max_tokens":1000,"stop":"xxxx"})").status == 200);
  server.engine().wait_aborted(1);
}

TEST_CASE("before the model is loaded the server is alive and says when to come back") {
  Server server(test_options());
  server.start();
  HttpClient client(server.port());
  CHECK(client.get("/livez").status == 200);
  CHECK(client.get("/readyz").status == 503);
  CHECK(client.get("/startupz").status == 503);
  const HttpReply refused = client.post("/v1/completions", "{}");
  CHECK(refused.status == 503);
  CHECK(refused.fields.count("retry-after") == 1);
  CHECK(Json::parse(refused.body)["error"]["code"] == "model_loading");
}

TEST_CASE("a drain refuses new work, lets the old finish, and cuts nothing") {
  TestServer server;
  server.engine().hold(true);
  HttpClient running(server.port());
  HttpClient late(server.port());
  CHECK(late.get("/readyz").status == 200);
  running.send(post(R"({"prompt":"abc"})"));
  server.engine().wait_live(1);
  server.server().stop();
  HttpReply refused;
  do {
    refused = late.get("/readyz");
  } while (refused.status == 200);
  CHECK(refused.status == 503);
  HttpClient fresh(server.port());
  const HttpReply answer = fresh.post("/v1/completions", R"({"prompt":"x"})");
  CHECK(answer.status == 503);
  CHECK(answer.fields.count("retry-after") == 1);
  CHECK(answer.closed);
  server.engine().hold(false);
  CHECK(Json::parse(running.receive().body)["choices"][0]["text"] == "abc");
  CHECK(server.server().wait() == 0);
}

TEST_CASE("a second stop cuts running streams with an error event") {
  TestServer server(&endless);
  server.engine().hold(true);
  server.engine().allow_steps(1);
  HttpClient client(server.port());
  client.send(post(kStream));
  CHECK(client.receive_until("data: "));
  HttpClient whole(server.port());
  whole.send(post(R"({"prompt":"a"})"));
  server.engine().wait_live(2);
  server.server().stop();
  server.server().stop();
  CHECK(client.receive_until("event: error\ndata: {\"error\""));
  CHECK(whole.receive().status == 503);
  CHECK(server.server().wait() == 2);
}

TEST_CASE("what a drain's deadline finds unfinished is cut with an error event") {
  ServerOptions options = test_options();
  options.drain.deadline = std::chrono::milliseconds(1);
  TestServer server(&endless, options);
  server.engine().hold(true);
  server.engine().allow_steps(1);
  HttpClient client(server.port());
  client.send(post(kStream));
  CHECK(client.receive_until("data: "));
  server.server().stop();
  CHECK(client.receive_until("server_draining"));
  CHECK(server.server().wait() == 1);
}

TEST_CASE("a server that has no model yet can be stopped, by a signal too") {
  for (const bool by_signal : {false, true}) {
    Server server(test_options());
    if (by_signal) server.handle_signals({});
    server.start();
    if (by_signal) {
      CHECK(::kill(::getpid(), SIGTERM) == 0);
    } else {
      server.stop();
    }
    CHECK(server.wait() == 0);
  }
}

TEST_CASE("a slow head or body is answered with 408 and the connection closed") {
  ServerOptions options = test_options();
  options.timeout.header = options.timeout.body = std::chrono::milliseconds(20);
  TestServer server({}, options);
  for (const std::string& part :
       {std::string("GET /livez HTTP/1.1\r\nHost:"), post(R"({"prompt":"abc"})").substr(0, 100)}) {
    HttpClient client(server.port());
    client.send(part);
    const HttpReply reply = client.receive();
    CHECK(reply.status == 408);
    CHECK(reply.closed);
  }
}

TEST_CASE("a client that takes nothing of its answer is left, others are not") {
  ServerOptions options = test_options();
  options.timeout.write = std::chrono::milliseconds(50);
  TestServer server(&endless, options);
  HttpClient deaf(server.port());
  // More than the sockets between them hold.
  deaf.send(post(R"({"prompt":"a","n":16,"max_tokens":2000,"logprobs":2,"return_token_ids":true,"stream":true})"));
  HttpClient other(server.port());
  while (other.get("/metrics").body.find("quire:http_connections 1\n") == std::string::npos) {
  }
  CHECK_FALSE(deaf.receive_until("[DONE]"));
  CHECK(other.post("/v1/completions", R"({"prompt":"a","max_tokens":3})").status == 200);
}

TEST_CASE("each of several choices has a first token and gaps of its own") {
  TestServer server(says("abcd"));
  HttpClient client(server.port());
  client.post("/v1/completions", R"({"prompt":["x","y"],"n":3,"max_tokens":4})");
  const std::string text = client.get("/metrics").body;
  const auto count_of = [&](const std::string& name) {
    const std::string line = name + "_count{model_name=\"fake\"} ";
    const std::size_t at = text.find(line);
    return at == std::string::npos ? -1 : std::stoi(text.substr(at + line.size()));
  };
  CHECK(count_of("vllm:time_to_first_token_seconds") == 6);
  CHECK(count_of("vllm:inter_token_latency_seconds") == 6 * 3);
}

TEST_CASE("metrics use vLLM's names") {
  TestServer server;
  HttpClient client(server.port());
  client.post("/v1/completions", R"({"prompt":"abc"})");
  const std::string text = client.get("/metrics").body;
  for (const char* name :
       {"vllm:time_to_first_token_seconds_count{model_name=\"fake\"} 1", "vllm:inter_token_latency_seconds_bucket",
        "vllm:e2e_request_latency_seconds_sum", "vllm:request_queue_time_seconds_count",
        "vllm:request_success_total{finished_reason=\"stop\",model_name=\"fake\"} 1"}) {
    INFO(name);
    CHECK(text.find(name) != std::string::npos);
  }
}

TEST_CASE("requests whose clients leave are in every metric of requests, as aborted") {
  TestServer server(&endless);
  server.engine().hold(true);
  {
    HttpClient streaming(server.port());
    HttpClient waiting(server.port());
    streaming.send(post(kStream));
    waiting.send(post(R"({"prompt":"a","max_tokens":1000,"n":2})"));
    server.engine().wait_live(2);
  }
  server.engine().wait_aborted(2);
  HttpClient client(server.port());
  std::string text;
  const auto value_of = [&](const std::string& sample) {
    const std::size_t at = text.find(sample + " ");
    return at == std::string::npos ? -1 : std::stoi(text.substr(at + sample.size() + 1));
  };
  const std::string aborted = "vllm:request_success_total{finished_reason=\"abort\",model_name=\"fake\"}";
  for (int attempt = 0; attempt < 10'000 && value_of(aborted) < 2; ++attempt)
    text = client.get("/metrics").body;
  CHECK(value_of(aborted) == 2);
  const auto count_of = [&](const std::string& name) { return value_of(name + "_count{model_name=\"fake\"}"); };
  for (const char* name : {"vllm:e2e_request_latency_seconds", "vllm:request_prompt_tokens",
                           "vllm:request_generation_tokens", "vllm:request_params_n"})
    CHECK(count_of(name) == 2);
  // Each choice counts.
  for (const char* name : {"vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds",
                           "vllm:request_decode_time_seconds", "vllm:request_inference_time_seconds"})
    CHECK(count_of(name) == 3);
}

TEST_CASE("a request that is refused is in no metric of requests that ended") {
  TestServer server;
  HttpClient client(server.port());
  CHECK(client.post("/v1/completions", R"({"prompt":"abc","max_tokens":-1})").status == 400);
  CHECK(client.get("/metrics").body.find("vllm:request_success_total{") == std::string::npos);
}
