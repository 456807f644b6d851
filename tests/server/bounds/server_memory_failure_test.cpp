// Memory that the system refuses ends a request, never the server: each allocation of each handler fails once, on every
// thread of the server. Afterwards nothing of the request is left, and the next one is answered.
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "server/api/common/store/background_responses.h"
#include "server/state/live_operations.h"
#include "server/wire/client_budget.h"
#include "tests/server/batch/batch_folder.h"
#include "tests/server/bounds/route_requests.h"
#include "tests/server/models/models_server.h"
#include "tests/server/test_server.h"
#include "tests/unit/engine/allocations.h"

using namespace quire;
using namespace quire::test;

namespace server_memory_failure {

ServerOptions failing_options(const BatchFolder& folder) {
  ServerOptions options = test_options();
  options.batches = folder.options;
  options.resume.window = std::chrono::milliseconds(50);
  options.timeout.write = std::chrono::seconds(20);
  return options;
}

// An engine whose own thread may not fail: only its messages to the server are under test.
FakeEngine::Script exempt_script() {
  return [](const Request&, std::int32_t) {
    exempt_this_thread();
    return bytes("abcdefgh");
  };
}

// Waits until the request's coroutines have ended, so that nothing is counted or charged.
void await_idle(TestServer& server) {
  const auto is_idle = [](ServerState& state) {
    return state.num_busy.load() == 0 && state.live.count() == 0 && state.sockets.count() == 0 &&
           state.bodies.num_bytes() == 0 && state.answers.num_bytes() == 0 && state.num_connections.load() == 0 &&
           state.background->count() == 0;
  };
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(HttpClient::kPatience);
  while (!is_idle(server.server().state())) {
    ServerState& state = server.server().state();
    INFO("busy " << state.num_busy.load() << " live " << state.live.count() << " sockets " << state.sockets.count()
                 << " bodies " << state.bodies.num_bytes() << " answers " << state.answers.num_bytes()
                 << " connections " << state.num_connections.load() << " background " << state.background->count());
    if (std::chrono::steady_clock::now() > until) FAIL("something of a request that failed is left");
    std::this_thread::yield();
  }
  server.engine().wait_live(0);
}

// The answer's status; 0 where the connection closed without one. A stream is read to its end, a socket's message to
// its answer's.
int answer_to_failing(TestServer& server, const std::string& request) {
  HttpClient client(server.port());
  client.send(request);
  const int status = client.receive().status;
  const bool asks_by_socket = request.find("response.create") != std::string::npos;
  if (status == 101 && asks_by_socket)
    client.receive_until_any({"\"type\":\"response.completed\"", "\"type\":\"error\""});
  return status;
}

struct Sweep {
  std::int64_t num_failures = 0;
  std::set<int> statuses;
};

// The n-th allocation fails for all n that the request comes to, or each `stride`-th.
Sweep sweep(TestServer& server, const std::string& request, std::int64_t stride) {
  Sweep done;
  answer_to_failing(server, request);
  await_idle(server);
  for (std::int64_t n = 0;; n += stride) {
    INFO("allocation " << n << " of " << request.substr(0, 200));
    fail_next_allocation(n, FailsIn::kOtherThreads);
    done.statuses.insert(answer_to_failing(server, request));
    while (server.server().state().num_busy.load() > 0)
      std::this_thread::yield();
    const bool has_failed = !forget_failure();
    await_idle(server);
    CHECK(HttpClient(server.port()).get("/livez").status == 200);
    await_idle(server);
    if (!has_failed) break;
    ++done.num_failures;
  }
  return done;
}

std::string chat_body(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"ab"}],"max_tokens":9)" + fields + "}";
}

// Requests beside the plain form of each route.
std::vector<std::string> further_requests() {
  const std::string stream = R"(,"stream":true)";
  return {
      request_of("POST", "/v1/chat/completions", chat_body(stream)),
      request_of("POST", "/v1/chat/completions", chat_body(R"(,"store":true)")),
      request_of("POST", "/v1/chat/completions",
                 chat_body(R"(,"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{}}})")),
      request_of("POST", "/v1/messages",
                 R"({"max_tokens":9,"stream":true,"messages":[{"role":"user","content":"a"}]})"),
      request_of("POST", "/v1/responses", R"({"input":"ab","stream":true})"),
      request_of("POST", "/v1/responses", R"({"input":"ab","background":true})"),
      request_of("POST", "/v1/responses", R"({"input":"ab","background":true,"stream":true})"),
      request_of("POST", "/v1/completions", R"({"prompt":["a","b"],"n":2,"stream":true})"),
      request_of("POST", "/v1/completions", R"({"prompt":"ab","stream":true})", "X-Request-Id: kept\r\n"),
      form_request(request_lines(2)),
      request_of("GET", "/v1/models/fake"),
      request_of("GET", "/ui/app.js"),
  };
}

}  // namespace server_memory_failure

using namespace server_memory_failure;

TEST_CASE("memory that is refused anywhere in any handler ends that request alone", "[.nightly]") {
  const BatchFolder folder;
  TestServer server(exempt_script(), failing_options(folder));
  answer_to_failing(server, request_of("POST", "/v1/completions", R"({"prompt":"a"})"));
  for (const Route& route : routes())
    sweep(server, request_of_route(route), 1);
  for (const std::string& request : further_requests())
    sweep(server, request, 1);
  CHECK(HttpClient(server.port()).post("/v1/completions", R"({"prompt":"a"})").status == 200);
}

TEST_CASE("memory that is refused anywhere in a socket's message ends that connection alone", "[memory]") {
  const BatchFolder folder;
  TestServer server(exempt_script(), failing_options(folder));
  const std::string message = R"({"type":"response.create","input":"ab","max_output_tokens":9})";
  const Sweep done = sweep(server, open_socket_request("/v1/responses") + socket_message(message), 1);
  CHECK(done.num_failures > 100);
  CHECK(HttpClient(server.port()).post("/v1/completions", R"({"prompt":"a"})").status == 200);
}

TEST_CASE("a background response that memory is refused for ends as failed, and is found", "[memory]") {
  const BatchFolder folder;
  TestServer server(exempt_script(), failing_options(folder));
  const std::string request = request_of("POST", "/v1/responses", R"({"input":"ab","background":true})");
  answer_to_failing(server, request);
  await_idle(server);
  std::map<std::string, int> ends;
  bool has_failed = true;
  for (std::int64_t n = 0; has_failed; ++n) {
    fail_next_allocation(n, FailsIn::kOtherThreads);
    HttpReply begun;
    {
      HttpClient client(server.port());
      client.send(request);
      begun = client.receive();
    }
    while (server.server().state().num_busy.load() > 0)
      std::this_thread::yield();
    has_failed = !forget_failure();
    await_idle(server);
    if (begun.status != 200) continue;
    const std::string id = Json::parse(begun.body)["id"];
    INFO("allocation " << n << " of " << id);
    const HttpReply found = HttpClient(server.port()).get("/v1/responses/" + id);
    REQUIRE(found.status == 200);
    ++ends[Json::parse(found.body)["status"]];
  }
  CHECK(ends.size() == 2);
  CHECK(ends["failed"] > 5);
  CHECK(ends["completed"] >= 1);  // the last one met no failure; some threads may meet those of others
}

TEST_CASE("memory that is refused here and there in each handler ends that request alone", "[memory]") {
  const BatchFolder folder;
  TestServer server(exempt_script(), failing_options(folder));
  answer_to_failing(server, request_of("POST", "/v1/completions", R"({"prompt":"a"})"));
  std::int64_t num_failures = 0;
  for (const Route& route : routes())
    num_failures += sweep(server, request_of_route(route), 67).num_failures;
  for (const std::string& request : further_requests())
    num_failures += sweep(server, request, 67).num_failures;
  CHECK(num_failures > 200);
  CHECK(HttpClient(server.port()).post("/v1/completions", R"({"prompt":"a"})").status == 200);
}
