#include "server/http/text_pool.h"

#include <catch2/catch.hpp>
#include <future>
#include <string>

#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

// A schedule whose jobs say which they were.
struct Spoken {
  TextSchedule schedule;
  std::string said;

  void add(TextLane lane, const std::string& client, const std::string& word) {
    schedule.add(lane, client, [this, word] { said += word; });
  }
  // Runs the next job at this cost; false where there is none.
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
  // An expensive job sets its client back by what it cost.
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
  TextPool pool(2);
  pool.start();
  std::promise<void> release;
  const auto released = release.get_future().share();
  std::promise<void> began;
  pool.post(TextLane::kLong, "key a", [&] {
    began.set_value();
    released.wait();
  });
  began.get_future().wait();
  pool.post(TextLane::kLong, "key a", [] {});
  std::promise<void> done;
  pool.post(TextLane::kQuick, "key b", [&] { done.set_value(); });
  done.get_future().wait();
  CHECK(pool.stats().num_waiting[static_cast<std::size_t>(TextLane::kLong)] == 1);
  release.set_value();
}

namespace {

// Costs the compiler much.
std::string costly_request() {
  std::string pattern = "(";
  for (int i = 0; i < 40; ++i)
    pattern +=
        std::string(i == 0 ? "" : "|") + "[a-z]{0," + std::to_string(40 + i) + "}[0-9]{0,40}x" + std::to_string(i);
  return dump_json(Json{{"prompt", "a"}, {"max_tokens", 1}, {"guided_regex", pattern + "){1,50}"}});
}

}  // namespace

TEST_CASE("a costly grammar in a short body is answered, and does not hold a neighbour up") {
  TestServer server(says("x"));
  HttpClient attacker(server.port());
  HttpClient neighbour(server.port());
  const std::string body = costly_request();
  attacker.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
  CHECK(neighbour.post("/v1/completions", R"({"prompt":"a","max_tokens":1})").status == 200);
  const int status = attacker.receive().status;
  CHECK((status == 200 || status == 400));
}
