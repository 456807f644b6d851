// Blocks of a real model below the pool belong to the cache's element type.
#include <catch2/catch.hpp>
#include <future>

#include "tests/support/temporary_folder.h"
#include "tests/unit/engine/served_model.h"

using namespace quire;
using namespace quire::test;

namespace {

// One choice, whole.
class WholeSink : public OutputSink {
 public:
  void send(OutputEvent event) noexcept override {
    tokens_.insert(tokens_.end(), event.tokens.begin(), event.tokens.end());
    if (event.finish) whole_.set_value(std::move(tokens_));
  }
  std::vector<TokenId> wait() { return whole_.get_future().get(); }

 private:
  std::vector<TokenId> tokens_;
  std::promise<std::vector<TokenId>> whole_;
};

}  // namespace

TEST_CASE("after a restart int4 blocks are served from the disk, and to caches of int4 alone",
          "[tier][engine][model]") {
  const TemporaryFolder folder;
  std::vector<TokenId> expected;
  const auto num_restored = [&](KvDType dtype) {
    EngineOptions options;
    options.kv_cache.dtype = dtype;
    options.kv_cache.disk_tier_path = folder.path().string();
    options.model_version = "demo";
    ServedModel served(source_folder() / "deploy/demo-model/quire-demo.gguf", 64, options);
    served.engine->start();
    Request request = request_of(made_tokens(100, 1, 500), 10);
    request.id = "0";
    request.arrival = Clock::now();
    const auto sink = std::make_shared<WholeSink>();
    const Result<void> submitted =
        served.engine->queue().submit({std::make_shared<const Request>(std::move(request)), sink});
    REQUIRE(submitted);
    const std::vector<TokenId> tokens = sink->wait();
    if (expected.empty()) expected = tokens;
    if (dtype == KvDType::kI4) CHECK(tokens == expected);
    return served.engine->stats().num_blocks_restored;
  };
  CHECK(num_restored(KvDType::kI4) == 0);
  CHECK(num_restored(KvDType::kF16) == 0);
  CHECK(num_restored(KvDType::kI8) == 0);
  CHECK(num_restored(KvDType::kI4) >= 6);
}
