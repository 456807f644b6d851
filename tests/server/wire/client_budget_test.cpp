#include "server/wire/client_budget.h"

#include <catch2/catch.hpp>
#include <deque>

#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr std::int64_t kBudgetBound = 800'000;
constexpr std::int64_t kLarge = 100'000;

// An upload that notes that it was cut.
struct Sender {
  Sender(ClientBudget& budget, const std::string& client) : upload(budget, client, [this] { ++num_cuts; }) {}
  bool take(std::int64_t bytes) { return upload.take(bytes, kBudgetBound); }
  int num_cuts = 0;
  ClientBudget::Charge upload;
};

}  // namespace

TEST_CASE("a full budget cuts the largest unfinished upload of the heaviest client") {
  ClientBudget budget;
  std::deque<Sender> senders;
  for (const char* client : {"key a", "key a", "key b"})
    senders.emplace_back(budget, client);
  CHECK(senders[0].take(3 * kLarge));
  CHECK(senders[1].take(kLarge));
  CHECK(senders[2].take(3 * kLarge));
  CHECK(budget.num_bytes() == 7 * kLarge);
  Sender neighbour(budget, "key c");
  CHECK(neighbour.take(kLarge));
  CHECK(senders[0].num_cuts == 1);
  CHECK(senders[0].upload.was_cut());
  CHECK_FALSE(senders[0].take(1));
  CHECK(senders[1].num_cuts == 0);
  CHECK(senders[2].num_cuts == 0);
  CHECK(budget.num_cut() == 1);
}

TEST_CASE("an upload that is the largest itself is given up") {
  ClientBudget budget;
  Sender first(budget, "address 192.0.2.1");
  Sender second(budget, "address 192.0.2.1");
  CHECK(first.take(2 * kLarge));
  CHECK(second.take(5 * kLarge));
  CHECK_FALSE(second.take(kLarge));
  CHECK(second.num_cuts == 0);
  CHECK(first.take(kLarge));
}

TEST_CASE("a whole body is not cut, and frees its bytes when it was parsed") {
  ClientBudget budget;
  std::deque<Sender> whole;
  for (int i = 0; i < 7; ++i) {
    CHECK(whole.emplace_back(budget, "key a").take(kLarge));
    whole.back().upload.complete();
  }
  Sender large(budget, "key b");
  CHECK(large.take(ClientBudget::kSmall));  // the share of small bodies
  CHECK_FALSE(large.take(ClientBudget::kSmall));
  whole.pop_front();
  Sender next(budget, "key b");
  CHECK(next.take(2 * ClientBudget::kSmall - 50'000));
  CHECK(std::none_of(whole.begin(), whole.end(), [](const Sender& sender) { return sender.upload.was_cut(); }));
}

TEST_CASE("a body that is alone may use the whole budget, and all of it is freed") {
  ClientBudget budget;
  {
    Sender only(budget, "key a");
    CHECK(only.take(kBudgetBound));
    CHECK_FALSE(only.take(1));
  }
  CHECK(budget.num_bytes() == 0);
}

namespace {

std::string head_of(const std::string& framing) {
  return "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + framing + "\r\n\r\n";
}

ServerOptions small_budget() {
  ServerOptions options = test_options();
  options.max_queued_bytes = 1 << 20;
  return options;
}

}  // namespace

TEST_CASE("declared lengths reserve nothing: seventeen heads without a body delay no other client") {
  TestServer server(says("x"), small_budget());
  std::deque<HttpClient> attackers;
  for (int i = 0; i < 17; ++i)
    attackers.emplace_back(server.port()).send(head_of("Content-Length: " + std::to_string(1 << 20)));
  HttpClient neighbour(server.port());
  for (int i = 0; i < 3; ++i)
    CHECK(neighbour.post("/v1/completions", R"({"prompt":"a","max_tokens":1})").status == 200);
}

TEST_CASE("chunked uploads are charged as they arrive: the largest is refused, a neighbour is served") {
  TestServer server(says("x"), small_budget());
  const std::string chunk = "10000\r\n" + std::string(65536, ' ') + "\r\n";
  std::deque<HttpClient> attackers;
  // Sends in turns, so that each gains a sixteenth of the budget until it is full.
  for (int i = 0; i < 4; ++i)
    attackers.emplace_back(server.port()).send(head_of("Transfer-Encoding: chunked"));
  for (int round = 0; round < 8; ++round) {
    for (HttpClient& attacker : attackers)
      attacker.send(chunk);
  }
  HttpClient neighbour(server.port());
  CHECK(neighbour.post("/v1/completions", R"({"prompt":"a","max_tokens":1})").status == 200);
  CHECK(server.server().state().bodies.num_bytes() <= (1 << 20) + 4 * 65536);
  int num_refused = 0;
  for (HttpClient& attacker : attackers) {
    attacker.send("0\r\n\r\n");
    const HttpReply reply = attacker.receive();
    num_refused += reply.status == 503 ? 1 : 0;
  }
  CHECK(num_refused >= 1);
}

TEST_CASE("a body below the least rate gets 408") {
  ServerOptions options = small_budget();
  options.timeout.body = std::chrono::milliseconds(50);
  options.min_body_rate = 1 << 30;
  TestServer server(says("x"), options);
  HttpClient client(server.port());
  client.send(head_of("Content-Length: 100000") + std::string(50000, ' '));
  CHECK(client.receive().status == 408);
  CHECK(server.server().state().bodies.num_bytes() == 0);
}
