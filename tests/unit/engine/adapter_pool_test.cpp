// Adapters without matrices, with sizes and files that the test chooses, in a pool of a hundred bytes.
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <fstream>
#include <future>
#include <map>
#include <random>

#include "core/engine/adapter_pool.h"
#include "tests/support/temporary_folder.h"

using namespace quire;
using namespace quire::test;

namespace adapter_pool {

// A matrix of a given size, counted while it lives.
class CountedLinear final : public Linear {
 public:
  CountedLinear(std::size_t bytes, std::atomic<std::uint64_t>& alive) : bytes_(bytes), alive_(alive) {
    alive_ += bytes;
  }
  ~CountedLinear() override { alive_ -= bytes_; }
  std::int64_t in_features() const override { return 1; }
  std::int64_t out_features() const override { return 1; }
  std::size_t bytes() const override { return bytes_; }

 private:
  const std::size_t bytes_;
  std::atomic<std::uint64_t>& alive_;
};

// Files whose first byte is the content and whose size is the adapter's.
class Files {
 public:
  std::filesystem::path write(const std::string& name, std::size_t bytes, char content = 'a') {
    std::ofstream(folder_ / name) << std::string(bytes, content);
    return folder_ / name;
  }
  AdapterPool::Load loader() {
    return [this](const std::filesystem::path& path) {
      std::unique_lock lock(mutex_);
      ++num_begun_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !held_; });
      std::ifstream file(path);
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      if (text.empty()) throw StartupError(path.string() + ": there is no such file");
      Adapter::Group model;
      LowRank change;
      change.down = std::make_unique<CountedLinear>(text.size(), alive);
      change.up = std::make_unique<CountedLinear>(0, alive);
      model[0].push_back(std::move(change));
      if (alive > most_alive) most_alive = alive.load();
      return std::make_shared<const Adapter>(std::vector<Adapter::Layer>(), std::move(model), text.substr(0, 1));
    };
  }
  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  void wait_begun(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_begun_ >= count; });
  }
  int num_begun() {
    const std::lock_guard lock(mutex_);
    return num_begun_;
  }

  std::atomic<std::uint64_t> alive{0};
  std::atomic<std::uint64_t> most_alive{0};

 private:
  const TemporaryFolder folder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_begun_ = 0;
  bool held_ = false;
};

using Ended = std::future<std::optional<Error>>;

Ended begin(AdapterWait& wait) {
  const auto promise = std::make_shared<std::promise<std::optional<Error>>>();
  wait.begin([promise](std::optional<Error> error) { promise->set_value(std::move(error)); });
  return promise->get_future();
}

bool is_over(const Ended& ended) {
  return ended.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// Takes the adapter like a request: at once, or again after the wait.
std::shared_ptr<const Adapter> taken(AdapterPool& pool, const std::string& name) {
  auto first = pool.take(name);
  REQUIRE(first);
  if (first->adapter != nullptr) return first->adapter;
  REQUIRE(begin(*first->wait).get() == std::nullopt);
  auto again = pool.take(name);
  REQUIRE(again);
  REQUIRE(again->adapter != nullptr);
  return again->adapter;
}

using Names = std::vector<std::string>;

TEST_CASE("adapters that were asked for least recently leave the memory, and come back when asked for",
          "[engine][adapter]") {
  Files files;
  const auto pool = std::make_shared<AdapterPool>(100, files.loader());
  for (const char* name : {"a", "b", "c"})
    pool->add(name, files.write(name, 40, name[0]));
  CHECK(pool->stats().in_memory == Names{"b", "c"});
  CHECK(taken(*pool, "b")->content_key() == "b");
  CHECK(taken(*pool, "a")->content_key() == "a");
  CHECK(pool->stats().in_memory == Names{"a", "b"});
  CHECK(pool->stats().used_bytes == 80);
  CHECK(pool->stats().num_loads == 4);
  CHECK(pool->stats().num_dropped == 2);
  CHECK_FALSE(pool->take("d"));
  CHECK(files.alive == 80);
  CHECK_THROWS_WITH(pool->add("large", files.write("large", 101)), Catch::Contains("adapter_memory"));
  CHECK(pool->stats().in_memory == Names{"a", "b"});
}

TEST_CASE("an adapter in use never leaves, and who needs its room waits for its last user", "[engine][adapter]") {
  Files files;
  const auto pool = std::make_shared<AdapterPool>(100, files.loader());
  pool->add("a", files.write("a", 60, 'a'));
  auto user = taken(*pool, "a");
  const Adapter* const before = user.get();
  CHECK_THROWS_AS(pool->add("b", files.write("b", 60, 'b')), AdapterShortage);
  pool->add_unread("b", files.write("b", 60, 'b'));
  auto wait = pool->take("b")->wait;
  REQUIRE(wait != nullptr);
  const Ended ended = begin(*wait);
  // The next request for the one in use waits behind it: otherwise the room would never become free.
  std::shared_ptr<AdapterWait> behind;
  while (behind == nullptr)
    behind = pool->take("a")->wait;  // until the pool's thread has seen the wait
  Ended second = begin(*behind);
  CHECK_FALSE(is_over(ended));
  CHECK(user.get() == before);
  CHECK(user->content_key() == "a");
  CHECK(pool->stats().running == Names{"a"});
  user.reset();
  CHECK(ended.wait_for(std::chrono::hours(1)) == std::future_status::ready);
  auto of_b = pool->take("b")->adapter;
  REQUIRE(of_b != nullptr);
  wait.reset();
  CHECK_FALSE(is_over(second));
  of_b.reset();
  CHECK(second.get() == std::nullopt);
  CHECK(pool->take("a")->adapter != nullptr);
  CHECK(files.most_alive <= 100);
}

TEST_CASE("a wait that its request gave up makes no room and is not called back", "[engine][adapter]") {
  Files files;
  const auto pool = std::make_shared<AdapterPool>(100, files.loader());
  pool->add("a", files.write("a", 60, 'a'));
  const auto user = taken(*pool, "a");
  pool->add_unread("b", files.write("b", 60, 'b'));
  auto wait = pool->take("b")->wait;
  std::atomic<bool> is_called{false};
  wait->begin([&](const std::optional<Error>&) { is_called = true; });
  while (pool->take("a")->wait == nullptr) {
  }
  wait.reset();
  while (pool->take("a")->adapter == nullptr) {  // until the pool's thread notices that it is gone
  }
  pool->stop();
  CHECK_FALSE(is_called);
  CHECK(files.num_begun() == 1);
}

TEST_CASE("a removed or replaced adapter stays with its users and counts until they are gone", "[engine][adapter]") {
  Files files;
  const auto pool = std::make_shared<AdapterPool>(100, files.loader());
  pool->add("a", files.write("a", 60, 'a'));
  auto user = taken(*pool, "a");
  CHECK_THROWS_AS(pool->add("a", files.write("other", 60, 'o')), AdapterShortage);
  CHECK(taken(*pool, "a") == user);
  pool->add("a", files.write("small", 30, 's'));
  CHECK(user->content_key() == "a");
  CHECK(taken(*pool, "a")->content_key() == "s");
  CHECK(pool->stats().used_bytes == 90);
  pool->remove("a");
  CHECK_FALSE(pool->take("a"));
  CHECK(pool->stats().used_bytes == 60);
  CHECK(user->content_key() == "a");
  user.reset();
  CHECK(pool->stats().used_bytes == 0);
  CHECK(files.alive == 0);
}

TEST_CASE("a file that changed or is gone fails the requests for it alone", "[engine][adapter]") {
  Files files;
  const auto pool = std::make_shared<AdapterPool>(100, files.loader());
  const auto path = files.write("a", 60, 'a');
  pool->add("a", path);
  pool->add("b", files.write("b", 60, 'b'));
  files.write("a", 60, 'z');
  auto wait = pool->take("a")->wait;
  const auto changed = begin(*wait).get();
  REQUIRE(changed);
  CHECK(changed->code == "adapter_failed");
  CHECK(changed->kind == ErrorKind::kUnavailable);
  CHECK(changed->message ==
        "The adapter 'a' cannot be used: its file was changed since it was loaded; load it again in place");
  CHECK(files.alive == 0);
  // Requested again at once, it is not read again.
  const int num_read = files.num_begun();
  auto again = pool->take("a")->wait;
  CHECK(begin(*again).get()->code == "adapter_failed");
  CHECK(files.num_begun() == num_read);
  CHECK(taken(*pool, "b")->content_key() == "b");
  pool->add("a", path);
  CHECK(taken(*pool, "a")->content_key() == "z");
  pool->add("b", files.write("b", 60, 'b'));
  std::filesystem::remove(path);
  auto gone = pool->take("a")->wait;
  CHECK(begin(*gone).get()->message == "The adapter 'a' cannot be used: its file cannot be read any more");
}

TEST_CASE("waits are called back when the pool stops, and when the name is removed", "[engine][adapter]") {
  Files files;
  const auto pool = std::make_shared<AdapterPool>(100, files.loader());
  pool->add("a", files.write("a", 60, 'a'));
  const auto user = taken(*pool, "a");
  pool->add_unread("b", files.write("b", 60, 'b'));
  pool->add_unread("c", files.write("c", 60, 'c'));
  const auto first = pool->take("b")->wait;
  const auto second = pool->take("c")->wait;
  Ended removed = begin(*first);
  Ended stopped = begin(*second);
  pool->remove("b");
  CHECK(removed.get() == std::nullopt);
  CHECK_FALSE(pool->take("b"));
  pool->stop();
  CHECK(stopped.get() == std::nullopt);
  const auto late = pool->take("c")->wait;
  CHECK(begin(*late).get()->kind == ErrorKind::kUnavailable);
}

TEST_CASE("requests of many threads for more adapters than fit never see a wrong one, nor take more memory",
          "[engine][adapter]") {
  constexpr int kNumThreads = 6;
  constexpr int kNumNames = 7;
  Files files;
  const auto pool = std::make_shared<AdapterPool>(100, files.loader());
  for (int i = 0; i < kNumNames; ++i)
    pool->add_unread(
        std::string(1, static_cast<char>('a' + i)),
        files.write("f" + std::to_string(i), 20 + 10 * static_cast<std::size_t>(i), static_cast<char>('a' + i)));
  std::atomic<int> num_wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kNumThreads; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      for (int n = 0; n < 300; ++n) {
        const std::string name(1, static_cast<char>('a' + random() % kNumNames));
        auto asked = pool->take(name);
        std::shared_ptr<AdapterWait> wait = asked->wait;
        if (wait != nullptr && random() % 8 == 0) {  // its client leaves
          wait->begin([](const std::optional<Error>&) {});
          continue;
        }
        if (wait != nullptr && begin(*wait).get()) ++num_wrong;
        if (wait != nullptr) asked = pool->take(name);
        const std::shared_ptr<const Adapter> adapter = asked->adapter;
        if (adapter == nullptr) {
          ++num_wrong;
          continue;
        }
        wait.reset();
        if (adapter->content_key() != name) ++num_wrong;
        std::this_thread::yield();
        if (adapter->content_key() != name) ++num_wrong;
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  CHECK(num_wrong == 0);
  CHECK(files.most_alive <= 100);
  CHECK(pool->stats().running.empty());
  CHECK(pool->stats().waiting.empty());
  CHECK(pool->stats().num_dropped > 100);
}

}  // namespace adapter_pool
