// Memory that runs out at any one place of a whole engine while blocks move between its pool, host memory and disk, on
// the engine's thread or on the disk folder's: at most the request that needed it ends, the blocks found for others are
// right, and the engine serves and shuts down as before.
#include <catch2/catch.hpp>

#include "tests/unit/engine/allocations.h"
#include "tests/unit/engine/harness.h"
#include "tests/unit/engine/kv/tier_folders.h"

using namespace quire;
using namespace quire::test;

namespace {

// Takes no memory in send().
class PlainSink final : public OutputSink {
 public:
  PlainSink() { tokens.reserve(100); }
  void send(OutputEvent event) noexcept override {
    for (const TokenId token : event.tokens)
      tokens.push_back(token);
    if (!event.finish) return;
    ++num_finishes;
    lacked_memory = event.finish->error != nullptr && event.finish->error->code == "out_of_memory";
    has_error = event.finish->error != nullptr;
  }
  std::vector<TokenId> tokens;
  int num_finishes = 0;
  bool has_error = false;
  bool lacked_memory = false;
};

// Conversations that evict each other from 14 blocks, over host memory for some more and a disk.
class MovingScene {
 public:
  explicit MovingScene(const TemporaryFolder& folder, std::int64_t window = 0) : harness_(options(folder, window)) {
    harness_.model.sequences_a_step.reserve(10'000);
    kEngineThread.assume();
  }

  void converse() {
    const std::vector<TokenId> first = made_tokens(18, 1);
    serve({first});
    serve({made_tokens(20, 3), made_tokens(21, 4), made_tokens(22, 5)});
    serve({joined(first, made_tokens(6, 2)), joined(first, made_tokens(4, 6)), made_tokens(19, 7)});
    serve({made_tokens(20, 3), joined(first, made_tokens(9, 2))});
  }

  // Drains with time enough: an endless wait would show in the test.
  void end() {
    const Fallible scope;
    harness_.engine.drain(Clock::now() + std::chrono::hours(1));
    harness_.engine.stop();
  }

  bool is_healthy() const { return harness_.engine.healthy(); }
  EngineStats stats() const { return harness_.engine.stats(); }
  const std::vector<std::shared_ptr<PlainSink>>& sinks() const { return sinks_; }

 private:
  static HarnessOptions options(const TemporaryFolder& folder, std::int64_t window) {
    HarnessOptions options{.num_blocks = 14, .window = window};
    options.deferred_seed.reset();                                          // the tool itself takes memory
    options.price = {.fixed = 0.01, .stream = 0.001, .prompt_token = 0.1};  // more than reading from the disk takes
    options.engine.scheduler.max_num_seqs = 3;
    options.engine.scheduler.preemption = Preemption::kSwap;
    options.engine.kv_cache.host_tier_bytes = window > 0 ? 2000 : 800;
    options.engine.kv_cache.disk_tier_path = folder.path();
    options.engine.kv_cache.disk_tier_bytes = 1 << 20;
    options.engine.identity.model.files = "one";
    if (window > 0) options.engine.num_window_parts = WindowPool::least_parts(window, options.block_size) + 2;
    return options;
  }

  bool step() {
    const Fallible scope;
    return harness_.step();
  }

  // Submits all at once and runs them to their ends.
  void serve(const std::vector<std::vector<TokenId>>& prompts) {
    const std::size_t before = sinks_.size();
    for (const std::vector<TokenId>& prompt : prompts) {
      Request request = request_of(prompt, 8);
      request.id = std::to_string(sinks_.size());
      request.arrival = harness_.now + std::chrono::microseconds(sinks_.size());
      sinks_.push_back(std::make_shared<PlainSink>());
      Submission submission{std::make_shared<const Request>(std::move(request)), sinks_.back()};
      const bool is_submitted = harness_.engine.queue().submit(std::move(submission)).has_value();
      REQUIRE(is_submitted);
    }
    const auto has_ended = [](const std::shared_ptr<PlainSink>& sink) { return sink->num_finishes > 0; };
    while (!std::all_of(sinks_.begin() + static_cast<std::ptrdiff_t>(before), sinks_.end(), has_ended)) {
      // A request that waits for the disk is woken by it, or gives it up.
      if (!step()) harness_.engine.queue().wait(Clock::now() + std::chrono::milliseconds(1));
    }
  }

  Harness harness_;
  std::vector<std::shared_ptr<PlainSink>> sinks_;
};

}  // namespace

TEST_CASE("memory that is exhausted anywhere while blocks move costs at most the request that needed it",
          "[engine][memory][.long]") {
  const FailsIn where = GENERATE(FailsIn::kFallible, FailsIn::kOtherThreads);
  const std::int64_t window = GENERATE(0, 8);
  const TemporaryFolder untouched;
  MovingScene whole(untouched, window);
  whole.converse();
  whole.end();
  // With a window, the scene's own returning prompts still have their parts: only the next process restores.
  if (window == 0) REQUIRE(whole.stats().num_blocks_restored > 0);
  REQUIRE_FALSE(records_in(untouched.path()).empty());
  std::int64_t num_before = 0;
  std::int64_t num_errors = 0;
  std::uint64_t num_restored = 0;
  for (bool has_failed = true; has_failed; ++num_before) {
    INFO("allocation " << num_before);
    const TemporaryFolder folder;
    const auto check = [&](const MovingScene& scene) {
      REQUIRE(scene.sinks().size() == whole.sinks().size());
      for (std::size_t i = 0; i < scene.sinks().size(); ++i) {
        INFO("request " << i);
        const PlainSink& got = *scene.sinks()[i];
        const PlainSink& expected = *whole.sinks()[i];
        REQUIRE(got.num_finishes == 1);
        REQUIRE(got.has_error == got.lacked_memory);
        num_errors += got.has_error ? 1 : 0;
        REQUIRE(std::equal(got.tokens.begin(), got.tokens.end(), expected.tokens.begin()));
        if (!got.has_error) REQUIRE(got.tokens.size() == expected.tokens.size());
      }
      REQUIRE(scene.is_healthy());
      REQUIRE(scene.stats().num_blocks_used == 0);
      REQUIRE(scene.stats().num_waiting == 0);
    };
    {
      MovingScene scene(folder, window);
      fail_next_allocation(num_before, where);
      scene.converse();
      scene.end();
      has_failed = !forget_failure();
      check(scene);
    }
    if (num_before % 5 != 0) continue;
    // The files it left on the disk are whole.
    MovingScene next(folder, window);
    next.converse();
    next.end();
    check(next);
    num_restored += next.stats().num_blocks_restored;
  }
  CHECK(num_before > 300);
  if (where == FailsIn::kOtherThreads) {
    CHECK(num_errors == 0);
  } else {
    CHECK(num_errors > 30);
  }
  CHECK(num_restored > 100);
}
