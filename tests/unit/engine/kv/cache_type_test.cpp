// Blocks of a real model below the pool belong to the cache's element type and the model's identity.
#include <catch2/catch.hpp>
#include <future>

#include "tests/support/temporary_folder.h"
#include "tests/unit/engine/served_model.h"

using namespace quire;
using namespace quire::test;

namespace {

// Collects a choice and returns it whole.
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

struct Restored {
  std::vector<TokenId> tokens;
  std::uint64_t num_restored = 0;
};

// Serves by an engine of its own, with a disk tier in the folder.
Restored serve(const TemporaryFolder& folder, KvDType dtype, const ModelIdentity& identity) {
  EngineOptions options;
  options.kv_cache.dtype = dtype;
  options.kv_cache.disk_tier_path = folder.path().string();
  options.identity = identity;
  ServedModel served(source_folder() / "deploy/demo-model/quire-demo.gguf", 64, options);
  served.engine->start();
  Request request = request_of(made_tokens(100, 1, 500), 10);
  request.id = "0";
  request.arrival = Clock::now();
  const auto sink = std::make_shared<WholeSink>();
  const Result<void> submitted =
      served.engine->queue().submit({std::make_shared<const Request>(std::move(request)), sink});
  REQUIRE(submitted);
  Restored out{sink->wait()};
  out.num_restored = served.engine->stats().num_blocks_restored;
  return out;
}

}  // namespace

TEST_CASE("after a restart int4 blocks are served from the disk, and to caches of int4 alone",
          "[tier][engine][model]") {
  const TemporaryFolder folder;
  const ModelIdentity identity{.model = {"demo", ""}};
  const Restored first = serve(folder, KvDType::kI4, identity);
  CHECK(first.num_restored == 0);
  CHECK(serve(folder, KvDType::kF16, identity).num_restored == 0);
  CHECK(serve(folder, KvDType::kI8, identity).num_restored == 0);
  const Restored again = serve(folder, KvDType::kI4, identity);
  CHECK(again.num_restored >= 6);
  CHECK(again.tokens == first.tokens);
}

TEST_CASE("after a restart blocks are served from the disk to a model of the same identity alone",
          "[tier][engine][model][identity]") {
  const TemporaryFolder folder;
  const ModelIdentity first{.model = {"files", "RoPE 1"}, .draft_model = {"drafter", "RoPE 1"}};
  CHECK(serve(folder, KvDType::kF16, first).num_restored == 0);
  CHECK(serve(folder, KvDType::kF16, first).num_restored >= 6);
  std::vector<ModelIdentity> others(4, first);
  others[0].model.files = "other files";
  others[1].model.options = "RoPE 2";
  others[2].draft_model.files = "other files";
  others[3].draft_model.options = "RoPE 2";
  for (const ModelIdentity& other : others)
    CHECK(serve(folder, KvDType::kF16, other).num_restored == 0);
}
