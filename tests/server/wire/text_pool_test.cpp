#include "server/threads/text_pool.h"

#include <catch2/catch.hpp>
#include <future>
#include <optional>
#include <string>

#include "server/ops/keys/admin.h"
#include "tests/server/models/models_server.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

// A schedule whose jobs record their names.
struct Spoken {
  TextSchedule schedule{1};
  std::string said;

  void add(TextLane lane, const std::string& client, const std::string& word) {
    schedule.add(lane, client, [this, word] { said += word; });
  }
  // Runs the next job at this cost; returns false if there is none.
  bool run(double seconds, bool quick_only = false) {
    auto next = schedule.take(quick_only);
    if (!next) return false;
    next->job();
    schedule.charge(next->lane, next->client, seconds);
    return true;
  }
};

}  // namespace

TEST_CASE("clients of a lane take turns by the time that they used") {
  Spoken spoken;
  for (int i = 0; i < 4; ++i)
    spoken.add(TextLane::kLong, "key a", "a");
  spoken.add(TextLane::kLong, "key b", "b");
  spoken.add(TextLane::kLong, "key b", "b");
  while (spoken.run(1.0)) {
  }
  CHECK(spoken.said == "ababaa");
  // An expensive job sets its client back by the job's cost.
  spoken.said.clear();
  for (int i = 0; i < 3; ++i) {
    spoken.add(TextLane::kLong, "key c", "c");
    spoken.add(TextLane::kLong, "key d", "d");
  }
  CHECK(spoken.run(5.0));
  for (int i = 0; i < 5; ++i)
    CHECK(spoken.run(1.0));
  CHECK(spoken.said == "cdddcc");
}

TEST_CASE("a client that comes back has saved nothing up, and owes what it used") {
  Spoken spoken;
  spoken.add(TextLane::kLong, "idle", "i");
  CHECK(spoken.run(1.0));
  for (int i = 0; i < 10; ++i)
    spoken.add(TextLane::kLong, "busy", "b");
  for (int i = 0; i < 5; ++i)
    CHECK(spoken.run(1.0));
  spoken.said.clear();
  for (int i = 0; i < 3; ++i)
    spoken.add(TextLane::kLong, "idle", "i");
  for (int i = 0; i < 6; ++i)
    CHECK(spoken.run(1.0));
  CHECK(std::count(spoken.said.begin(), spoken.said.end(), 'i') == 3);
  CHECK(spoken.said.substr(0, 3) != "iii");
}

TEST_CASE("long jobs do not hold quick ones up, nor starve") {
  Spoken spoken;
  for (int i = 0; i < 3; ++i)
    spoken.add(TextLane::kLong, "key a", "L");
  CHECK_FALSE(spoken.run(1.0, true));  // the thread that is kept for quick ones
  for (int i = 0; i < 6; ++i)
    spoken.add(TextLane::kQuick, "key b", "q");
  CHECK(spoken.run(0.5, true));
  while (spoken.run(spoken.schedule.num_waiting(TextLane::kQuick) > 3 ? 0.5 : 1.0)) {
  }
  CHECK(std::count(spoken.said.begin(), spoken.said.end(), 'L') == 3);
  CHECK(spoken.said.find('L') < spoken.said.size() - 3);
}

TEST_CASE("a quick job runs while every other thread is held by long ones") {
  std::promise<void> release;
  const auto released = release.get_future().share();
  std::promise<void> began;
  std::promise<void> done;
  TextPool pool(2);  // ends before what its jobs use
  pool.start();
  pool.post(TextLane::kLong, "key a", [&] {
    began.set_value();
    released.wait();
  });
  began.get_future().wait();
  pool.post(TextLane::kLong, "key a", [] {});
  pool.post(TextLane::kQuick, "key b", [&] { done.set_value(); });
  done.get_future().wait();
  CHECK(pool.stats().num_waiting[static_cast<std::size_t>(TextLane::kLong)] == 1);
  release.set_value();
}

TEST_CASE("a client's long jobs leave a thread to the others") {
  TextSchedule schedule(2);
  for (int i = 0; i < 3; ++i)
    schedule.add(TextLane::kLong, "key a", [] {});
  const auto first = schedule.take(false);
  CHECK(schedule.take(false));
  CHECK_FALSE(schedule.take(false));  // two of its jobs run
  schedule.add(TextLane::kLong, "key b", [] {});
  const auto other = schedule.take(false);
  REQUIRE(other);
  CHECK(other->client == "key b");
  schedule.charge(TextLane::kLong, "key b", 1.0);
  CHECK_FALSE(schedule.take(false));
  schedule.charge(TextLane::kLong, "key a", 1.0);
  CHECK(schedule.take(false));
  CHECK(schedule.num_waiting(TextLane::kLong) == 0);
}

namespace {

// A different request for each number, whose automaton of 2^15 states takes the compiler far longer than kQuickTime.
std::string costly_request(int number) {
  const std::string pattern = "[ab]*a[ab]{14}" + std::string(static_cast<std::size_t>(number), 'x');
  return dump_json(Json{{"prompt", "a"}, {"max_tokens", 1}, {"guided_regex", pattern}});
}

double metric(HttpClient& client, const std::string& name) {
  const std::string page = client.get("/metrics").body;
  const std::size_t at = page.find("\n" + name + " ");
  return at == std::string::npos ? 0.0 : std::stod(page.substr(at + name.size() + 2));
}

}  // namespace

TEST_CASE("a costly grammar in a short body is compiled among the long jobs; a cheap one is not") {
  TestServer server(says("x"));
  HttpClient client(server.port());
  const std::string long_time = R"(quire:text_seconds_total{lane="long"})";
  const std::string cheap = R"({"prompt":"a","max_tokens":1,"guided_regex":"[a-z]{1,3}"})";
  CHECK(client.post("/v1/completions", cheap).status == 200);
  CHECK(metric(client, long_time) == 0.0);
  const int status = client.post("/v1/completions", costly_request(0)).status;
  CHECK((status == 200 || status == 400));
  // Its time is charged after the answer is sent.
  double spent = 0.0;
  while (spent == 0.0)
    spent = metric(client, long_time);
  // The result is cached.
  CHECK(client.post("/v1/completions", costly_request(0)).status == status);
  CHECK(metric(client, long_time) == spent);
}

TEST_CASE("a client that leaves ends the compilation of its grammar, and so does the server's end") {
  std::optional<TestServer> server(std::in_place, says("x"));
  {
    HttpClient client(server->port());
    client.send(posted_completion(costly_request(1)));
    HttpClient other(server->port());
    // It has its text thread, or waits for it.
    while (metric(other, R"(quire:text_seconds_total{lane="quick"})") == 0.0) {
    }
  }
  HttpClient left(server->port());
  left.send(posted_completion(costly_request(2)));
  server->server().stop();
  server->server().stop();
  const HttpReply reply = left.receive();
  CHECK((reply.status == 503 || reply.status == 0));  // 0: it came too late to be accepted
  server->server().wait();
}

TEST_CASE("health, metrics and the admin's requests wait for no text thread") {
  ServerOptions options = test_options();
  options.admin_listen = "127.0.0.1:0";
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  TestServer server(says("x"), options);
  const std::shared_ptr<void> at_end(nullptr, [&](void*) { release.set_value(); });
  server.server().state().admin.reload = [](const auto& done) { done("{}"); };
  for (int i = 0; i < 2 * options.text_threads; ++i) {
    for (const TextLane lane : {TextLane::kQuick, TextLane::kLong})
      server.server().state().text->post(lane, "client " + std::to_string(i), [released] { released.wait(); });
  }
  HttpClient client(server.port());
  for (const char* path : {"/livez", "/readyz", "/metrics"})
    CHECK(client.get(path).status == 200);
  HttpClient admin(server.server().admin_port());
  CHECK(admin.post("/admin/reload", "").status == 200);
}
