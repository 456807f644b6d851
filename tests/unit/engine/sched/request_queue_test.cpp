#include "core/engine/request_queue.h"

#include <catch2/catch.hpp>

#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

Submission submission(int num_tokens, std::string key = "") {
  Request request = request_of(made_tokens(num_tokens, 1), 1);
  request.key_name = std::move(key);
  return {std::make_shared<const Request>(std::move(request)), std::make_shared<KeepingSink>(1)};
}

std::vector<Submission> received(RequestQueue& queue) {
  kEngineThread.assume();
  std::vector<Submission> submissions;
  std::vector<Abort> aborts;
  queue.drain_into(submissions, aborts);
  return submissions;
}

}  // namespace

TEST_CASE("the server's bounds refuse with 503, a key's with 429, until there is room again", "[queue]") {
  RequestQueue queue({.max_queued_requests = 3, .max_queued_requests_per_key = 2});
  CHECK(queue.submit(submission(5, "a")));
  CHECK(queue.submit(submission(5, "a")));
  const auto over_key = queue.submit(submission(5, "a"));
  REQUIRE_FALSE(over_key);
  CHECK(over_key.error().kind == ErrorKind::kRateLimited);
  CHECK(over_key.error().retry_after);
  CHECK(queue.submit(submission(5, "b")));
  const auto over_all = queue.submit(submission(5, "c"));
  REQUIRE_FALSE(over_all);
  CHECK(over_all.error().kind == ErrorKind::kUnavailable);
  std::vector<Submission> submissions = received(queue);
  REQUIRE(submissions.size() == 3);
  CHECK_FALSE(queue.submit(submission(5, "c")));  // received, but not started
  submissions[0].ticket.give_back();
  CHECK(queue.submit(submission(5, "c")));
}

TEST_CASE("what waits of a key's batches takes no place of its other requests", "[queue]") {
  RequestQueue queue({.max_queued_requests = 20, .max_queued_requests_per_key = 2});
  const auto of_batch = [] {
    Request request = request_of(made_tokens(5, 1), 1);
    request.key_name = "a";
    request.is_background = true;
    return Submission{std::make_shared<const Request>(std::move(request)), std::make_shared<KeepingSink>(1)};
  };
  CHECK(queue.submit(of_batch()));
  CHECK(queue.submit(of_batch()));
  CHECK_FALSE(queue.submit(of_batch()));
  CHECK(queue.submit(submission(5, "a")));
  CHECK(queue.submit(submission(5, "a")));
  CHECK_FALSE(queue.submit(submission(5, "a")));
}

TEST_CASE("new bounds hold from the next request on, new weights are handed over once", "[queue]") {
  kEngineThread.assume();
  RequestQueue queue({.max_queued_requests = 1});
  CHECK(queue.submit(submission(5)));
  CHECK_FALSE(queue.submit(submission(5)));
  CHECK_FALSE(queue.take_key_weights());
  queue.reconfigure({.max_queued_requests = 2, .max_queue_time_s = 3.0}, {{"a", 2.0}});
  CHECK(queue.submit(submission(5)));
  CHECK_FALSE(queue.submit(submission(5)));
  CHECK(queue.options().max_queue_time_s == 3.0);
  const auto weights = queue.take_key_weights();
  REQUIRE(weights);
  CHECK(*weights == std::map<std::string, double>{{"a", 2.0}});
  CHECK_FALSE(queue.take_key_weights());
}

TEST_CASE("tokens and bytes are bounded too", "[queue]") {
  RequestQueue queue({.max_queued_tokens = 101, .max_queued_bytes = 1000, .max_queued_tokens_per_key = 60});
  CHECK(queue.submit(submission(60, "a")));
  CHECK(queue.submit(submission(1, "a")).error().kind == ErrorKind::kRateLimited);
  CHECK(queue.submit(submission(42, "b")).error().kind == ErrorKind::kUnavailable);
  CHECK(queue.submit(submission(40, "b")));
  {
    const auto ticket = queue.reserve("c", 1000);
    CHECK(ticket);
    CHECK_FALSE(queue.reserve("d", 1));
  }
  CHECK(queue.reserve("d", 1));  // the ticket went back when it was destroyed
}

TEST_CASE("retry-after is what waits divided by the measured rate", "[queue]") {
  kEngineThread.assume();
  RequestQueue queue({.max_queued_requests = 2});
  CHECK(queue.submit(submission(900)));
  CHECK(queue.submit(submission(100)));
  const auto told = [&] { return queue.submit(submission(1)).error().retry_after; };
  CHECK(told() == std::chrono::seconds(1));
  queue.note_progress({.requests_per_second = 100.0, .prompt_tokens_per_second = 100.0});
  CHECK(told() == std::chrono::seconds(10));
  queue.note_progress({.requests_per_second = 0.1, .prompt_tokens_per_second = 100.0});
  CHECK(told() == std::chrono::seconds(20));
  queue.note_progress({.requests_per_second = 0.001, .prompt_tokens_per_second = 0.001});
  CHECK(told() == std::chrono::seconds(600));
  CHECK(queue.overloaded().retry_after == std::chrono::seconds(600));
}

TEST_CASE("where the bound on tokens is reached no prompt is tokenized to find that out", "[queue]") {
  RequestQueue queue({.max_queued_tokens = 100, .max_queued_tokens_per_key = 60});
  CHECK(queue.submit(submission(60, "a")));
  CHECK(queue.reserve("a", 10).error().kind == ErrorKind::kRateLimited);
  CHECK(queue.reserve("b", 10));
  CHECK(queue.submit(submission(40, "b")));
  CHECK(queue.reserve("c", 10).error().kind == ErrorKind::kUnavailable);
}

TEST_CASE("a request larger than a bound by itself is refused without a time to try again", "[queue]") {
  RequestQueue queue({.max_queued_tokens = 100, .max_queued_bytes = 1000, .max_queued_tokens_per_key = 60});
  CHECK(queue.submit(submission(61, "a")).error().kind == ErrorKind::kInvalidRequest);
  CHECK(queue.reserve("a", 1001).error().kind == ErrorKind::kInvalidRequest);
  CHECK(queue.submit(submission(60, "a")));
}

TEST_CASE("a closed queue refuses, but hands over what it has", "[queue]") {
  RequestQueue queue({});
  CHECK(queue.submit(submission(5)));
  queue.close();
  CHECK(queue.submit(submission(5)).error().code == "server_draining");
  CHECK(queue.reserve("", 1).error().kind == ErrorKind::kUnavailable);
  CHECK(received(queue).size() == 1);
}

TEST_CASE("places are sequences: a request of several choices takes several", "[queue]") {
  RequestQueue queue({.max_queued_requests = 5});
  const auto choices = [](std::int32_t count) {
    Request request = request_of(made_tokens(3, 1), 1);
    request.num_choices = count;
    return Submission{std::make_shared<const Request>(std::move(request)), std::make_shared<KeepingSink>(count)};
  };
  CHECK(queue.submit(choices(4)));
  CHECK(queue.submit(choices(2)).error().kind == ErrorKind::kUnavailable);
  CHECK(queue.submit(choices(6)).error().kind == ErrorKind::kInvalidRequest);
  CHECK(queue.submit(choices(1)));
  CHECK_FALSE(queue.reserve("", 0));
  std::vector<Submission> submissions = received(queue);
  submissions[0].ticket.give_back();
  Result<QueueTicket> reserved = queue.reserve("", 0);
  REQUIRE(reserved);
  Submission three = choices(3);
  three.ticket = *std::move(reserved);
  const auto accepted = queue.submit(std::move(three));
  CHECK(accepted);  // the ticket already reserved a place
  CHECK(queue.reserve("", 0));
}

TEST_CASE("the further prompts of lists fill half of the queue", "[queue]") {
  RequestQueue queue({.max_queued_requests = 4, .max_queued_tokens = 100});
  const auto of_list = [](int num_tokens) {
    Submission one = submission(num_tokens);
    one.continues_list = true;
    return one;
  };
  CHECK(queue.submit(submission(5)));
  CHECK(queue.submit(of_list(5)));
  CHECK_FALSE(queue.submit(of_list(5)));
  CHECK(queue.submit(submission(5)));
  CHECK(queue.submit(submission(5)));
  std::vector<Submission> submissions = received(queue);
  submissions.clear();
  CHECK(queue.submit(submission(30)));
  CHECK_FALSE(queue.submit(of_list(21)));
  CHECK(queue.submit(of_list(20)));
}
