#include "server/models/work_thread.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <new>

using namespace quire;

TEST_CASE("work for which there is no memory ends alone, and so does a look around", "[models][memory]") {
  std::atomic<int> num_looks{0};
  const auto look_around = [&]() -> std::optional<Clock::time_point> {
    if (num_looks++ == 0) throw std::bad_alloc();
    return std::nullopt;
  };
  WorkThread thread("models", look_around);
  std::promise<void> done;
  thread.post([] { throw std::bad_alloc(); });
  thread.post([&done] { done.set_value(); });
  CHECK(done.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
  thread.stop();
  CHECK(num_looks > 1);
}
