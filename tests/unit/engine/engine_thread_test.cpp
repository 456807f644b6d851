// The engine on its own thread: what other threads may do to it.
#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

// Counts tokens and finishes across threads.
class CountingSink : public OutputSink {
 public:
  void send(OutputEvent event) noexcept override {
    const std::lock_guard lock(mutex_);
    num_tokens_ += event.tokens.size();
    if (event.finish) finishes_.push_back(*std::move(event.finish));
    changed_.notify_all();
  }
  FinishInfo wait_finished() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !finishes_.empty(); });
    return finishes_.at(0);
  }
  bool is_finished() {
    const std::lock_guard lock(mutex_);
    return !finishes_.empty();
  }
  void wait_tokens(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_tokens_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t num_tokens_ = 0;
  std::vector<FinishInfo> finishes_;
};

std::shared_ptr<CountingSink> submit(Engine& engine, std::string id, int max_tokens, Result<void>* result = nullptr) {
  Request request = request_of(made_tokens(10, static_cast<int>(id.size())), max_tokens);
  request.id = std::move(id);
  request.arrival = Clock::now();
  auto sink = std::make_shared<CountingSink>();
  const Result<void> submitted = engine.queue().submit({std::make_shared<const Request>(std::move(request)), sink});
  if (result != nullptr) *result = submitted;
  return sink;
}

}  // namespace

TEST_CASE("many threads submit and abort while the engine runs", "[engine]") {
  Harness harness({.num_blocks = 200});
  harness.engine.start();
  std::vector<std::jthread> clients;
  std::atomic<int> num_finished{0};
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < 25; ++i) {
        const std::string id = std::to_string(client) + "/" + std::to_string(i);
        const auto sink = submit(harness.engine, id, 20);
        if (i % 3 == 0) harness.engine.queue().abort(id);
        sink->wait_finished();
        num_finished.fetch_add(1);
        static_cast<void>(harness.engine.stats().num_running);
      }
    });
  }
  clients.clear();
  CHECK(num_finished.load() == 100);
  harness.engine.stop();
  CHECK(harness.engine.stats().num_blocks_used == 0);
}

TEST_CASE("a drain refuses new requests, finishes old ones, and reports when it is done", "[engine]") {
  Harness harness({.num_blocks = 2000});
  harness.engine.start();
  const auto sink = submit(harness.engine, "old", 500);
  sink->wait_tokens(1);
  harness.engine.drain(Clock::now() + std::chrono::minutes(10));
  Result<void> refused;
  submit(harness.engine, "new", 5, &refused);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().kind == ErrorKind::kUnavailable);
  CHECK(harness.engine.wait_drained(Clock::now() + std::chrono::minutes(10)));
  CHECK(sink->wait_finished().reason == FinishReason::kLength);
}

TEST_CASE("what came before a drain is finished, however late in a step it came", "[engine]") {
  // Submits the next request when its own ends, and drains: the engine has already taken this step's arrivals, and has
  // nothing to compute in it.
  class DrainingSink : public CountingSink {
   public:
    explicit DrainingSink(Engine& engine) : engine_(engine) {}
    void send(OutputEvent event) noexcept override {
      if (event.finish) {
        next = submit(engine_, "next", 2000);
        engine_.drain(Clock::now() + std::chrono::minutes(10));
      }
      CountingSink::send(std::move(event));
    }
    std::shared_ptr<CountingSink> next;

   private:
    Engine& engine_;
  };
  Harness harness({.num_blocks = 20'000});
  const auto sink = std::make_shared<DrainingSink>(harness.engine);
  Request request = request_of(made_tokens(10, 1), 70'000);
  request.id = "endless";
  const auto accepted = harness.engine.queue().submit({std::make_shared<const Request>(std::move(request)), sink});
  REQUIRE(accepted);
  harness.engine.start();
  sink->wait_tokens(1);
  harness.engine.queue().abort("endless");
  sink->wait_finished();
  CHECK(harness.engine.wait_drained(Clock::now() + std::chrono::minutes(10)));
  CHECK(sink->next->is_finished());
}

TEST_CASE("at the drain's deadline the rest is cut with an error", "[engine]") {
  Harness harness({.num_blocks = 20'000});
  harness.engine.start();
  const auto sink = submit(harness.engine, "endless", 70'000);
  sink->wait_tokens(1);
  harness.engine.drain(Clock::now());
  CHECK(harness.engine.wait_drained(Clock::now() + std::chrono::minutes(10)));
  const FinishInfo info = sink->wait_finished();
  CHECK(info.reason == FinishReason::kAbort);
  CHECK(info.error->code == "server_draining");
}

TEST_CASE("stop cuts all requests, on an engine that never started too", "[engine]") {
  const bool started = GENERATE(true, false);
  std::shared_ptr<CountingSink> sink;
  {
    Harness harness({.num_blocks = 20'000});
    if (started) harness.engine.start();
    sink = submit(harness.engine, "endless", 70'000);
    if (started) sink->wait_tokens(1);
  }
  CHECK(sink->wait_finished().error->code == "server_draining");
}
