// Shared structures stay usable when memory runs out in the middle of a change: each allocation of the change fails
// once, and later calls find the state of before.
#include <catch2/catch.hpp>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>
#include <tuple>

#include "server/api/common/store/background_responses.h"
#include "server/api/common/store/response_store.h"
#include "server/media/media_store.h"
#include "server/ops/keys/quota.h"
#include "server/ops/stream_store.h"
#include "server/run/media_service.h"
#include "server/threads/media_pool.h"
#include "tests/server/batch/batch_folder.h"
#include "tests/unit/engine/allocations.h"

using namespace quire;
using namespace quire::test;

namespace store_memory_failure {

// Longer than what a string holds without memory of its own.
const std::string kAlice = "alice, whose name is a long one";
const std::string kBob = "bob, whose name is a long one too";
const std::string kId = "an id that needs memory of its own";

// Runs `change` with its n-th allocation failing; returns whether it failed.
bool fails_at(std::int64_t n, const std::function<void()>& change) {
  bool has_thrown = false;
  fail_next_allocation(n);
  try {
    change();
  } catch (const std::bad_alloc&) {
    has_thrown = true;
  }
  forget_failure();
  return has_thrown;
}

StoredResponse response_of(const std::string& owner, const std::string& id) {
  StoredResponse response;
  response.id = id;
  response.owner = owner;
  response.item_ids = {id + ", its first item", id + ", its second item"};
  return response;
}

class End {
 public:
  void report() {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  bool await() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [this] { return is_over_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
};

}  // namespace store_memory_failure

using namespace store_memory_failure;

TEST_CASE("a response for which there is no memory leaves the store as it was", "[memory]") {
  bool has_failed = true;
  for (std::int64_t n = 0; has_failed; ++n) {
    ResponseStoreOptions options;
    options.max_count = 2;
    ResponseStore store(options);
    store.put(response_of(kBob, kId));
    StoredResponse response = response_of(kAlice, kId);
    has_failed = fails_at(n, [&] { store.put(std::move(response)); });
    if (!has_failed) break;
    CHECK(store.count() == 1);
    CHECK(store.find(kId, kAlice) == nullptr);
    CHECK(store.find_item(kId + ", its first item", kAlice) == nullptr);
    // Each insertion makes room in the shelf that has most.
    store.put(response_of("carol", kId));
    store.put(response_of(kAlice, kId));
    CHECK(store.count() == 2);
    CHECK(store.find(kId, kAlice) != nullptr);
  }
}

TEST_CASE("a saved stream for which there is no memory can be opened again, and be revoked", "[memory]") {
  bool has_failed = true;
  for (std::int64_t n = 0; has_failed; ++n) {
    StreamStore store;
    has_failed = fails_at(n, [&] { store.open(kAlice, kId, Clock::now()); });
    if (has_failed) CHECK(store.open(kAlice, kId, Clock::now()) != nullptr);
    store.revoke(kAlice);
    CHECK(store.find(kAlice, kId, Clock::now()) == nullptr);
  }
}

TEST_CASE("a background response whose cancellation fails can be cancelled again", "[memory]") {
  bool has_failed = true;
  for (std::int64_t n = 0; has_failed; ++n) {
    for (const bool erases : {false, true}) {
      BackgroundResponses responses;
      int num_interrupts = 0;
      const auto interrupt = [&num_interrupts, held = std::make_shared<int>(1)] { ++num_interrupts; };
      responses.add(kId, kAlice, R"({"status":"in_progress"})", interrupt);
      const auto end = [&] { erases ? void(responses.erase(kId, kAlice)) : void(responses.cancel(kId, kAlice)); };
      has_failed = fails_at(n, end);
      if (has_failed) CHECK_FALSE(responses.is_cancelled(kId));
      if (has_failed) end();
      CHECK(responses.is_cancelled(kId));
      CHECK(num_interrupts == 1);
    }
  }
}

TEST_CASE("a picture's name for which there is no memory keeps its older meaning", "[memory]") {
  bool has_failed = true;
  for (std::int64_t n = 0; has_failed; ++n) {
    MediaStore store(1 << 20);
    store.remember(kAlice, kId, MediaFile{MediaKey{1, 2}, 3, 4});
    has_failed = fails_at(n, [&] { store.remember(kAlice, kId, MediaFile{MediaKey{1, 2}, 5, 6}); });
    const auto file = store.recall(kAlice, kId);
    REQUIRE(file);
    CHECK(file->width == (has_failed ? 3 : 5));
    store.remember(kAlice, kId, MediaFile{MediaKey{1, 2}, 7, 8});
    CHECK(store.recall(kAlice, kId)->width == 7);
  }
}

TEST_CASE("pieces for which there is no memory take no place in the queue", "[memory]") {
  MediaOptions options;
  options.max_waiting_per_key = 3;
  bool has_failed = true;
  for (std::int64_t n = 0; has_failed; ++n) {
    MediaPool pool(options);  // not started: pieces stay in the queue
    std::vector<TextSchedule::Job> jobs(3, [] {});
    has_failed = fails_at(n, [&] { std::ignore = pool.post(kAlice, std::move(jobs)); });
    const std::size_t num_left = 3 - pool.num_waiting();
    CHECK(pool.post(kAlice, std::vector<TextSchedule::Job>(num_left, [] {})));
    CHECK_FALSE(pool.post(kAlice, std::vector<TextSchedule::Job>(1, [] {})));
  }
}

TEST_CASE("an admission that fails takes no place of its key", "[memory]") {
  ApiKey key;
  key.name = kAlice;
  key.quota.max_concurrent = 1;
  key.quota.requests_per_minute = 100;
  bool has_failed = true;
  for (std::int64_t n = 0; has_failed; ++n) {
    QuotaTable table;
    has_failed = fails_at(n, [&] { std::ignore = table.admit(key, Clock::now()); });
    CHECK(table.admit(key, Clock::now()));
  }
}

TEST_CASE("a file for which there is no memory at its end is not listed, and costs no storage", "[memory][batches]") {
  bool has_failed = true;
  for (std::int64_t n = 0; has_failed; ++n) {
    const BatchFolder folder;
    StorageUse use(folder.options);
    FileStore files(folder.options, use);
    REQUIRE(files.load());
    {
      auto upload = files.begin(kAlice);
      REQUIRE(upload);
      REQUIRE((*upload)->write("text"));
      StoredFile file;
      file.filename = kId;
      has_failed = fails_at(n, [&] { std::ignore = files.finish(**upload, std::move(file)); });
    }
    CHECK(files.count() == (has_failed ? 0 : 1));
    CHECK((use.total() == 0) == has_failed);
  }
}

TEST_CASE("a picture for whose result there is no memory ends its request, not the server", "[memory][media]") {
  const BatchFolder folder;
  const std::string path = folder.options.directory + "/a picture's file";
  std::filesystem::create_directories(folder.options.directory);
  std::ofstream(path) << "text";
  MediaOptions options;
  options.root = folder.options.directory;
  MediaService service(options, nullptr);
  service.start();
  std::int64_t n = 0;
  for (bool has_failed = true; has_failed; ++n) {
    const auto media = service.begin(kAlice, kAlice, true);
    for (const auto kind : {MediaSource::Kind::kFile, MediaSource::Kind::kUrl})
      CHECK(media->loaded({kind, nullptr, path + std::to_string(static_cast<int>(kind))}) == nullptr);
    const auto end = std::make_shared<End>();  // pieces may call back after the wait
    fail_next_allocation(n, FailsIn::kOtherThreads);
    service.work(media, [end](const std::optional<Error>&) { end->report(); });
    CHECK(end->await());
    while (service.num_waiting() > 0)
      std::this_thread::yield();
    has_failed = !forget_failure();
  }
  CHECK(n > 5);
  service.stop();
  service.join();
}
