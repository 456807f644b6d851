#include "core/kv/disk_tier.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <fstream>

#include "core/base/result.h"
#include "core/kv/lower_tier.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace fs = std::filesystem;

namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "quire-tier-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TemporaryFolder() { fs::remove_all(path); }
  fs::path path;
};

DiskTierOptions options_of(const fs::path& folder, std::uint64_t fingerprint = 7) {
  return {.directory = folder,
          .max_bytes = 1 << 20,
          .max_queued_bytes = 1 << 20,
          .fingerprint = fingerprint,
          .block_size = 4};
}

std::vector<std::byte> payload_of(int value, std::size_t size = 100) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

std::unique_ptr<DiskTier> opened(const DiskTierOptions& options) {
  auto tier = std::make_unique<DiskTier>(options, [] {});
  tier->wait_idle();
  return tier;
}

// Writes a chain of `count` blocks and returns their ids.
std::vector<TierId> chain(DiskTier& tier, int count, int seed, const std::string& salt = "") {
  std::vector<TierId> ids;
  for (int i = 0; i < count; ++i) {
    ids.push_back(
        tier.offer(ids.empty() ? kNoTierId : ids.back(), salt, made_tokens(4, seed + i), payload_of(seed + i)));
    REQUIRE(ids.back() != kNoTierId);
  }
  tier.wait_idle();
  return ids;
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

using Payloads = std::vector<std::vector<std::byte>>;

Payloads fetched(DiskTier& tier, std::vector<TierId> ids) {
  const std::uint64_t number = tier.fetch(std::move(ids));
  tier.wait_idle();
  const auto all = tier.take_fetched();
  REQUIRE(all.size() == 1);
  CHECK(all[0].number == number);
  return all[0].payloads;
}

void flip_bit(const fs::path& path, std::streamoff offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const int byte = file.get();
  file.seekp(offset);
  file.put(static_cast<char>(byte ^ 1));
}

}  // namespace

TEST_CASE("blocks on disk are found again by another process", "[tier]") {
  const TemporaryFolder folder;
  std::vector<TierId> ids;
  {
    const auto tier = opened(options_of(folder.path));
    ids = chain(*tier, 3, 1, "salt");
  }
  const auto tier = opened(options_of(folder.path));
  CHECK(tier->num_records() == 3);
  CHECK(tier->find(kNoTierId, "salt", made_tokens(4, 1)) == ids[0]);
  CHECK(tier->find(ids[0], "", made_tokens(4, 2)) == ids[1]);
  CHECK(tier->find(kNoTierId, "other", made_tokens(4, 1)) == kNoTierId);
  CHECK(tier->find(ids[1], "", made_tokens(4, 2)) == kNoTierId);  // the same tokens elsewhere are not the same block
  CHECK(fetched(*tier, ids) == Payloads({payload_of(1), payload_of(2), payload_of(3)}));
  CHECK(tier->offer(kNoTierId, "salt", made_tokens(4, 1), payload_of(9)) == ids[0]);
}

TEST_CASE("another model's blocks are never read", "[tier]") {
  const TemporaryFolder folder;
  chain(*opened(options_of(folder.path, 7)), 2, 1);
  CHECK(opened(options_of(folder.path, 8))->num_records() == 0);
  CHECK(opened(options_of(folder.path, 7))->num_records() == 2);
}

TEST_CASE("a record with one wrong bit, wherever, is dropped with what follows it", "[tier]") {
  const TemporaryFolder folder;
  std::vector<TierId> ids;
  {
    const auto tier = opened(options_of(folder.path));
    ids = chain(*tier, 3, 1);
  }
  const fs::path second = files_in(folder.path).at(1);
  const auto size = static_cast<std::streamoff>(fs::file_size(second));
  const std::streamoff offset = GENERATE_COPY(0, 9, 17, 25, 33, 41, 45, 49, 53, 57, 70, 80, size - 1);
  flip_bit(second, offset);
  const auto tier = opened(options_of(folder.path));
  CHECK(tier->find(kNoTierId, "", made_tokens(4, 1)) == ids[0]);
  if (tier->num_records() == 3) {
    CHECK(fetched(*tier, ids) == Payloads(1, payload_of(1)));
    CHECK(tier->num_records() == 1);
  }
  CHECK(files_in(folder.path).size() == static_cast<std::size_t>(tier->num_records()));
}

TEST_CASE("what a kill left behind is cleaned up", "[tier]") {
  const TemporaryFolder folder;
  {
    const auto tier = opened(options_of(folder.path));
    chain(*tier, 3, 1);
  }
  const auto files = files_in(folder.path);
  fs::resize_file(files[2], fs::file_size(files[2]) / 2);                        // torn
  std::ofstream(files[0].parent_path() / "0000000000000009.kv.part") << "half";  // never finished
  std::ofstream(files[0].parent_path() / "0000000000000010.kv") << "";
  std::ofstream(files[0].parent_path() / "stray") << "text";
  const auto tier = opened(options_of(folder.path));
  CHECK(tier->num_records() == 2);
  CHECK(files_in(folder.path).size() == 2);
}

TEST_CASE("a chain without its beginning is removed", "[tier]") {
  const TemporaryFolder folder;
  {
    const auto tier = opened(options_of(folder.path));
    chain(*tier, 3, 1);
  }
  fs::remove(files_in(folder.path).at(0));
  CHECK(opened(options_of(folder.path))->num_records() == 0);
  CHECK(files_in(folder.path).empty());
}

TEST_CASE("the directory stays within its bound, chains going from their ends", "[tier]") {
  const TemporaryFolder folder;
  DiskTierOptions options = options_of(folder.path);
  options.max_bytes = 1000;  // five records of 172 bytes
  const auto tier = opened(options);
  const std::vector<TierId> old = chain(*tier, 4, 1);
  chain(*tier, 3, 50);
  CHECK(tier->num_bytes() <= 1000);
  CHECK(tier->num_records() == 5);
  CHECK(tier->contains(old[1]));
  CHECK_FALSE(tier->contains(old[2]));
  std::uintmax_t bytes = 0;
  for (const fs::path& file : files_in(folder.path))
    bytes += fs::file_size(file);
  CHECK(bytes == static_cast<std::uintmax_t>(tier->num_bytes()));
}

TEST_CASE("a directory that cannot be made is one clear line", "[tier]") {
  const TemporaryFolder folder;
  std::ofstream(folder.path / "file") << "";
  CHECK_THROWS_AS(DiskTier(options_of(folder.path / "file" / "below"), [] {}), StartupError);
}

namespace {

class WaitingSink : public OutputSink {
 public:
  void send(OutputEvent event) noexcept override {
    const std::lock_guard lock(mutex_);
    tokens_.insert(tokens_.end(), event.tokens.begin(), event.tokens.end());
    if (event.finish) finish_ = std::move(event.finish);
    changed_.notify_all();
  }
  std::pair<std::vector<TokenId>, FinishInfo> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finish_.has_value(); });
    return {tokens_, *finish_};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> tokens_;
  std::optional<FinishInfo> finish_;
};

std::pair<std::vector<TokenId>, FinishInfo> served(Engine& engine, const std::vector<TokenId>& prompt, int max_tokens) {
  static std::atomic<int> number{0};
  Request request = request_of(prompt, max_tokens);
  request.id = std::to_string(number.fetch_add(1));
  request.arrival = Clock::now();
  const auto sink = std::make_shared<WaitingSink>();
  const Result<void> submitted = engine.queue().submit({std::make_shared<const Request>(std::move(request)), sink});
  REQUIRE(submitted);
  return sink->wait();
}

HarnessOptions with_tier(const fs::path& folder, std::int64_t num_blocks = 64) {
  HarnessOptions options{.num_blocks = num_blocks};
  options.engine.kv_cache.disk_tier_path = folder.string();
  options.engine.model_version = "fake";
  return options;
}

}  // namespace

TEST_CASE("after a restart the first repeated conversation is served from the disk", "[tier][engine]") {
  const TemporaryFolder folder;
  const std::vector<TokenId> prompt = made_tokens(41, 1);
  std::vector<TokenId> expected;
  {
    Harness harness(with_tier(folder.path));
    harness.engine.start();
    expected = served(harness.engine, prompt, 10).first;
  }
  const bool damaged = GENERATE(false, true);
  if (damaged) {
    const auto files = files_in(folder.path);
    REQUIRE(files.size() >= 10);
    flip_bit(files[5], static_cast<std::streamoff>(fs::file_size(files[5])) - 1);
  }
  Harness harness(with_tier(folder.path));
  harness.engine.start();
  const auto [tokens, info] = served(harness.engine, prompt, 10);
  CHECK(tokens == expected);
  CHECK(info.num_cached_tokens == (damaged ? 20 : 40));
  CHECK(harness.engine.stats().num_blocks_restored == (damaged ? 5 : 10));
}

TEST_CASE("with a pool that holds one of them at a time, texts are the same with a disk below", "[tier][engine]") {
  const TemporaryFolder folder;
  std::vector<std::vector<TokenId>> expected;
  for (int i = 0; i < 6; ++i) {
    Harness harness;
    const auto sink = harness.submit(request_of(made_tokens(40, i), 8));
    harness.run();
    expected.push_back(sink->choices[0].tokens);
  }
  Harness harness(with_tier(folder.path, 16));
  harness.engine.start();
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 6; ++i) {
      CHECK(served(harness.engine, made_tokens(40, i), 8).first == expected[static_cast<std::size_t>(i)]);
    }
  }
  harness.engine.stop();
  CHECK(harness.engine.stats().num_blocks_used == 0);
}

TEST_CASE("what the pool evicts comes back, if reading costs less than computing", "[tier]") {
  const TemporaryFolder folder;
  const auto disk = opened(options_of(folder.path));
  SmallCache cache;
  KvCache& kv = cache.kv;
  LowerTier tier(kv, cache.storage, nullptr, disk.get());
  const std::vector<TokenId> first = made_tokens(17, 1);
  cache.serve(first);
  cache.serve(made_tokens(24, 2));  // takes all six blocks
  disk->wait_idle();
  CHECK(disk->num_records() == 4);
  CHECK_FALSE(tier.begin_restore("other salt", first, 1.0));
  const auto fetch = tier.begin_restore("", first, 1.0);
  REQUIRE(fetch);
  disk->wait_idle();
  const auto done = disk->take_fetched();
  REQUIRE(done.size() == 1);
  CHECK(tier.finish_restore("", first, done[0]) == 4);
  BlockTable table;
  kv.open(table, "");
  const PrefixMatch match = kv.match(table, first, 16);
  CHECK(match.num_blocks == 4);
  std::vector<BlockCopy> copies;
  REQUIRE(kv.admit(table, match, 17, copies));
  for (std::size_t i = 0; i < 16; ++i) {
    CHECK(cache.storage.tokens[SmallCache::slot(table, i)] == first[i].value);
  }
  kv.release(table, first, 16);
  kv.close(table);
  CHECK_FALSE(tier.begin_restore("", first, 1.0));  // it is all here
  cache.serve(made_tokens(24, 3));
  CHECK_FALSE(tier.begin_restore("", first, 1e-12));  // now it is known what reading costs
  CHECK(tier.begin_restore("", first, 1.0));
  kv.check_integrity();
}
