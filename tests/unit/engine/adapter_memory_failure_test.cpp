// Memory that runs out on the thread of the adapters: a wait ends all the same, and the thread lives.
#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <future>

#include "core/engine/adapter_pool.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/engine/allocations.h"

using namespace quire;
using namespace quire::test;

TEST_CASE("a wait for an adapter ends although memory runs out in between", "[engine][adapter][memory]") {
  const TemporaryFolder folder;
  const std::string name = "an adapter whose name is a long one";
  const std::filesystem::path path = folder / name;
  std::ofstream(path) << std::string(10, 'a');
  std::atomic<bool> is_readable{true};
  const AdapterPool::Load load = [&](const std::filesystem::path&) {
    if (!is_readable) throw StartupError("the file is gone, and the message is a long one");
    return std::make_shared<const Adapter>(std::vector<Adapter::Layer>(), Adapter::Group{}, "a");
  };
  for (const bool readable : {true, false}) {
    std::int64_t n = 0;
    for (bool has_failed = true; has_failed; ++n) {
      is_readable = true;
      const auto pool = std::make_shared<AdapterPool>(100, load);
      pool->add_unread(name, path);
      is_readable = readable;
      auto taken = pool->take(name);
      REQUIRE(taken);
      REQUIRE(taken->wait != nullptr);
      const auto ended = std::make_shared<std::promise<void>>();
      fail_next_allocation(n, FailsIn::kOtherThreads);
      taken->wait->begin([ended](const std::optional<Error>&) { ended->set_value(); });
      CHECK(ended->get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
      has_failed = !forget_failure();
    }
    CHECK(n > 1);
  }
}
