// Memory that runs out at any one place of an engine while a slot is saved, restored or erased: the order is answered
// once, with an error or with its whole result, and the next one works.
#include <catch2/catch.hpp>

#include "tests/unit/engine/allocations.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

// The answer to an order. Allocates no memory.
struct SlotAnswer {
  int num_calls = 0;
  bool lacked_memory = false;
  std::string code{};  // code of an error other than lacking memory
  std::optional<KeptChain> chain;
};

class SlotScene {
 public:
  explicit SlotScene(std::int64_t window, const std::string& files = "one") : harness_(options(window, files)) {
    kEngineThread.assume();
  }

  std::vector<TokenId> converse(const std::vector<TokenId>& prompt) {
    Request request = request_of(prompt, 6);
    request.slot = 0;
    const auto sink = harness_.submit(std::move(request));
    harness_.run();
    num_cached_ = sink->choices[0].finishes.at(0).num_cached_tokens;
    return sink->choices[0].tokens;
  }

  // Runs with the engine's n-th allocation failing, unless n is negative. Returns whether one has failed.
  bool order(SlotOrder::What what, SlotAnswer& answer, std::int64_t num_before, KeptChain chain = {}) {
    SlotOrder order{.what = what, .slot = 0, .max_bytes = 1 << 20, .chain = std::move(chain)};
    order.done = std::make_shared<const std::function<void(Result<KeptChain>)>>([&answer](Result<KeptChain> result) {
      ++answer.num_calls;
      answer.lacked_memory = !result && result.error().code == out_of_memory().code;
      if (!result && !answer.lacked_memory) answer.code = result.error().code;
      if (result) answer.chain.emplace(*std::move(result));
    });
    harness_.engine.order_slot(std::move(order));
    if (num_before >= 0) fail_next_allocation(num_before, FailsIn::kFallible);
    for (int i = 0; i < 100 && answer.num_calls == 0; ++i) {
      const Fallible scope;
      harness_.step();
    }
    return num_before >= 0 && !forget_failure();
  }

  // Cached tokens of the last conversation's prompt.
  std::int32_t num_cached() const { return num_cached_; }
  bool is_idle_and_healthy() const { return harness_.engine.healthy() && harness_.engine.stats().num_blocks_used == 0; }

 private:
  static HarnessOptions options(std::int64_t window, const std::string& files) {
    HarnessOptions options{.num_blocks = 32, .window = window};
    options.deferred_seed.reset();  // the tool itself takes memory
    options.engine.keeps_slots = true;
    options.engine.identity.model.files = files;
    options.engine.scheduler.max_num_seqs = 2;
    if (window > 0) options.engine.num_window_parts = WindowPool::least_parts(window, options.block_size) + 8;
    return options;
  }

  Harness harness_;
  std::int32_t num_cached_ = 0;
};

bool equal(const KeptChain& a, const KeptChain& b) {
  const auto same = [](const auto& x, const auto& y) { return *x == *y; };
  return a.content == b.content && a.salt == b.salt &&
         std::equal(a.payloads.begin(), a.payloads.end(), b.payloads.begin(), b.payloads.end(), same);
}

}  // namespace

TEST_CASE("memory that is exhausted anywhere while a slot moves ends that order alone, answered once",
          "[engine][memory]") {
  const std::int64_t window = GENERATE(0, 8);
  const std::vector<TokenId> prompt = made_tokens(21, 1);
  SlotScene untouched(window);
  const std::vector<TokenId> text = untouched.converse(prompt);
  SlotAnswer whole;
  untouched.order(SlotOrder::What::kSave, whole, -1);
  const std::vector<TokenId> next = joined(joined(prompt, text), made_tokens(3, 2));
  const std::vector<TokenId> next_text = untouched.converse(next);
  REQUIRE(whole.chain);
  REQUIRE(whole.chain->payloads.size() >= 5);
  for (const SlotOrder::What what : {SlotOrder::What::kSave, SlotOrder::What::kRestore, SlotOrder::What::kErase}) {
    int num_refused = 0;
    std::int64_t num_before = 0;
    for (bool has_failed = true; has_failed; ++num_before) {
      INFO("order " << static_cast<int>(what) << ", allocation " << num_before);
      SlotScene scene(window);
      const bool restores = what == SlotOrder::What::kRestore;
      if (!restores) REQUIRE(scene.converse(prompt) == text);
      SlotAnswer failing;
      has_failed = scene.order(what, failing, num_before, restores ? *whole.chain : KeptChain{});
      REQUIRE(failing.num_calls == 1);
      REQUIRE((failing.chain.has_value() || failing.lacked_memory));
      num_refused += failing.lacked_memory ? 1 : 0;
      if (what == SlotOrder::What::kSave && failing.chain) REQUIRE(equal(*failing.chain, *whole.chain));
      REQUIRE(scene.is_idle_and_healthy());
      if (restores) {
        SlotAnswer again;
        scene.order(what, again, -1, *whole.chain);
        REQUIRE((again.num_calls == 1 && again.chain.has_value()));
        REQUIRE(scene.converse(next) == next_text);
        REQUIRE(scene.num_cached() >= 24);
      } else if (what == SlotOrder::What::kSave) {
        SlotAnswer again;
        scene.order(what, again, -1);
        REQUIRE((again.num_calls == 1 && again.chain.has_value() && equal(*again.chain, *whole.chain)));
      }
    }
    CHECK(num_refused > 0);
    CHECK(num_before > num_refused);
  }
}

TEST_CASE("a slot is restored only into a model of the same identity", "[slots][identity]") {
  SlotScene saving(0, "one");
  saving.converse(made_tokens(21, 1));
  SlotAnswer saved;
  saving.order(SlotOrder::What::kSave, saved, -1);
  REQUIRE(saved.chain);
  SlotScene other(0, "other");
  SlotAnswer refused;
  other.order(SlotOrder::What::kRestore, refused, -1, *saved.chain);
  CHECK(refused.code == "slot_mismatch");
  SlotScene same(0, "one");
  SlotAnswer restored;
  same.order(SlotOrder::What::kRestore, restored, -1, *saved.chain);
  CHECK(restored.chain);
}
