#include "core/kv/tiers/disk_tier.h"

#include <catch2/catch.hpp>
#include <condition_variable>
#include <fstream>
#include <future>
#include <thread>

#include "core/base/result.h"
#include "tests/unit/engine/harness.h"
#include "tests/unit/engine/kv/tier_folders.h"

using namespace quire;
using namespace quire::test;

namespace fs = std::filesystem;

namespace {

DiskTierOptions options_of(const fs::path& folder, std::uint64_t fingerprint = 7) {
  return {.directory = folder,
          .max_bytes = 1 << 20,
          .max_queued_bytes = 1 << 20,
          .fingerprint = {fingerprint, 0},
          .block_size = 4};
}

std::vector<std::byte> payload_of(int value, std::size_t size = 100) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

using Payloads = std::vector<std::vector<std::byte>>;

// A process's prefix tree with its tier.
class Owner {
 public:
  explicit Owner(
      const DiskTierOptions& options, BlockHash hash = content_hash, std::function<void()> ready = [] {})
      : index(64, 4, hash, "model"), tier(options, std::move(ready)) {
    while (!tier.is_loaded()) {
      tier.receive(index, arrived);
      std::this_thread::yield();
    }
  }

  // Waits until the folder has done everything and the tree knows of it.
  void settle() {
    tier.wait_idle();
    while (tier.receive(index, arrived)) {
    }
  }

  bool put(PrefixNode node, const std::vector<std::byte>& payload) {
    const bool taken = tier.put(index, node, std::make_shared<const std::vector<std::byte>>(payload));
    index.forget_unused(node);
    settle();
    return taken;
  }

  PrefixNode child(PrefixNode parent, std::span<const TokenId> tokens) {
    const ChainKey key = index.key_after(index.key_of(parent), tokens);
    const PrefixNode found = index.find(parent, key, tokens);
    return found != kNoNode ? found : index.insert(parent, key, tokens);
  }

  // Writes a chain of `count` blocks, whose first has the tokens made of `seed`, and returns its nodes.
  std::vector<PrefixNode> chain(int count, int seed, const std::string& salt = "") {
    std::vector<PrefixNode> nodes;
    PrefixNode node = index.acquire_root(salt);
    for (int i = 0; i < count; ++i) {
      node = child(node, made_tokens(4, seed + i));
      nodes.push_back(node);
      REQUIRE(put(node, payload_of(seed + i)));
    }
    return nodes;
  }

  // The chain's nodes, as chain(count, seed, salt) wrote them, up to the first missing record.
  std::vector<PrefixNode> find(int count, int seed, const std::string& salt = "") {
    std::vector<PrefixNode> nodes;
    PrefixNode node = index.acquire_root(salt);
    for (int i = 0; i < count; ++i) {
      const std::vector<TokenId> tokens = made_tokens(4, seed + i);
      node = index.find(node, index.key_after(index.key_of(node), tokens), tokens);
      if (node == kNoNode || !tier.is_readable(node)) break;
      nodes.push_back(node);
    }
    return nodes;
  }

  // Payloads read for the nodes; empty for missing records.
  Payloads read(const std::vector<PrefixNode>& nodes) {
    arrived.clear();
    for (const PrefixNode node : nodes)
      tier.read(index, node);
    settle();
    Payloads payloads;
    for (const DiskTier::Arrived& each : arrived)
      payloads.push_back(each.payload != nullptr ? *each.payload : std::vector<std::byte>());
    for (const DiskTier::Arrived& each : arrived) {
      index.drop_user(each.node);
      index.forget_unused(each.node);
    }
    return payloads;
  }

  PrefixIndex index;
  std::vector<DiskTier::Arrived> arrived;
  DiskTier tier;
};

}  // namespace

TEST_CASE("blocks on disk are found again by another process", "[tier]") {
  const TemporaryFolder folder;
  Owner(options_of(folder.path())).chain(3, 1, "salt");
  Owner owner(options_of(folder.path()));
  CHECK(owner.tier.num_records() == 3);
  CHECK(owner.find(3, 1, "other").empty());
  CHECK(owner.find(1, 2).empty());  // the same tokens after another beginning are another block
  const std::vector<PrefixNode> nodes = owner.find(3, 1, "salt");
  REQUIRE(nodes.size() == 3);
  CHECK(owner.read(nodes) == Payloads({payload_of(1), payload_of(2), payload_of(3)}));
  owner.index.check_integrity();
}

TEST_CASE("another model's blocks are never read", "[tier]") {
  const TemporaryFolder folder;
  Owner(options_of(folder.path(), 7)).chain(2, 1);
  CHECK(Owner(options_of(folder.path(), 8)).tier.num_records() == 0);
  CHECK(Owner(options_of(folder.path(), 7)).tier.num_records() == 2);
}

TEST_CASE("a record with one wrong bit, wherever, is dropped", "[tier]") {
  const TemporaryFolder folder;
  Owner(options_of(folder.path())).chain(1, 1);
  const fs::path first = records_in(folder.path()).at(0);
  Owner(options_of(folder.path())).chain(3, 1);
  fs::path second;
  for (const fs::path& each : records_in(folder.path())) {
    if (each != first && read_record_head(each)->position == 1) second = each;
  }
  const auto size = static_cast<std::streamoff>(fs::file_size(second));
  const std::streamoff offset =
      GENERATE_COPY(0, 9, 17, 25, 33, 41, 45, 49, 53, 57, 65, 72, 76, 80, 84, 88, 92, 96, 100, size - 1);
  flip_bit(second, offset);
  Owner owner(options_of(folder.path()));
  const std::vector<PrefixNode> nodes = owner.find(3, 1);
  const Payloads payloads = owner.read(nodes);
  REQUIRE(!payloads.empty());
  CHECK(payloads[0] == payload_of(1));
  if (payloads.size() > 1) {
    CHECK(payloads[1].empty());
    CHECK(payloads[2] == payload_of(3));
    CHECK(owner.find(3, 1).size() == 1);
  }
  owner.tier.wait_idle();
  CHECK(std::cmp_equal(records_in(folder.path()).size(), owner.tier.num_records()));
  owner.index.check_integrity();
}

TEST_CASE("what a kill left behind is cleaned up", "[tier]") {
  const TemporaryFolder folder;
  Owner(options_of(folder.path())).chain(3, 1);
  fs::path last;
  for (const fs::path& each : records_in(folder.path())) {
    if (read_record_head(each)->position == 2) last = each;
  }
  fs::resize_file(last, fs::file_size(last) / 2);                            // torn
  std::ofstream(last.parent_path() / "0000000000000009.kv.part") << "half";  // never finished
  std::ofstream(last.parent_path() / "0000000000000010.kv") << "";
  std::ofstream(last.parent_path() / "stray") << "text";
  Owner owner(options_of(folder.path()));
  CHECK(owner.tier.num_records() == 2);
  CHECK(files_in(folder.path()).size() == 2 + 1);  // and the lock
}

TEST_CASE("a chain without its beginning is removed", "[tier]") {
  const TemporaryFolder folder;
  Owner(options_of(folder.path())).chain(3, 1);
  for (const fs::path& each : records_in(folder.path())) {
    if (read_record_head(each)->position == 0) fs::remove(each);
  }
  Owner owner(options_of(folder.path()));
  owner.settle();
  CHECK(owner.tier.num_records() == 0);
  CHECK(records_in(folder.path()).empty());
}

TEST_CASE("the directory stays within its bound, chains going from their ends", "[tier]") {
  const TemporaryFolder folder;
  DiskTierOptions options = options_of(folder.path());
  options.max_bytes = 1100;  // five records of 212 bytes
  Owner owner(options);
  owner.chain(4, 1);
  owner.chain(3, 50);
  CHECK(owner.tier.num_bytes() <= 1100);
  CHECK(owner.tier.num_records() == 5);
  CHECK(owner.find(4, 1).size() == 2);
  CHECK(owner.find(3, 50).size() == 3);
  std::uintmax_t bytes = 0;
  for (const fs::path& file : records_in(folder.path()))
    bytes += fs::file_size(file);
  CHECK(bytes == static_cast<std::uintmax_t>(owner.tier.num_bytes()));
  owner.index.check_integrity();
}

TEST_CASE("a directory that cannot be made is one clear line", "[tier]") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "";
  CHECK_THROWS_AS(DiskTier(options_of(folder.path() / "file" / "below"), [] {}), StartupError);
}

TEST_CASE("of two owners of a folder one writes, the other reads and takes over", "[tier]") {
  const TemporaryFolder folder;
  auto first = std::make_unique<Owner>(options_of(folder.path()));
  first->chain(2, 1);
  Owner second(options_of(folder.path()));
  CHECK(first->tier.can_write());
  CHECK_FALSE(second.tier.can_write());
  CHECK(second.read(second.find(2, 1)) == Payloads({payload_of(1), payload_of(2)}));
  const PrefixNode own = second.child(second.index.acquire_root(""), made_tokens(4, 30));
  second.index.add_user(own);
  CHECK_FALSE(second.put(own, payload_of(30)));
  first->chain(1, 10);
  first.reset();
  CHECK_FALSE(second.tier.can_take(100));  // this call tries to take the lock
  second.settle();
  CHECK(second.tier.can_write());
  CHECK(second.find(1, 10).size() == 1);  // written by the other owner meanwhile
  CHECK(second.put(own, payload_of(30)));
  Owner third(options_of(folder.path()));
  CHECK(third.tier.num_records() == 4);
}

TEST_CASE("equal tokens behind different prefixes are never mixed, for any writer", "[tier]") {
  const TemporaryFolder folder;
  const std::vector<TokenId> shared = made_tokens(4, 99);
  for (const int prefix : {1, 2}) {  // each begins to count at zero
    Owner owner(options_of(folder.path()));
    const PrefixNode first = owner.chain(1, prefix)[0];
    REQUIRE(owner.put(owner.child(first, shared), payload_of(100 + prefix)));
  }
  Owner third(options_of(folder.path()));
  for (const int prefix : {1, 2}) {
    const PrefixNode first = third.find(1, prefix).at(0);
    CHECK(third.read({third.child(first, shared)}) == Payloads({payload_of(100 + prefix)}));
  }
}

TEST_CASE("a reader never takes a record for the one that was there before", "[tier]") {
  const TemporaryFolder folder;
  auto first = std::make_unique<Owner>(options_of(folder.path()));
  first->chain(1, 1);
  Owner reader(options_of(folder.path()));
  const std::vector<PrefixNode> nodes = reader.find(1, 1);
  first.reset();
  fs::remove(records_in(folder.path()).at(0));
  Owner(options_of(folder.path())).chain(1, 1);  // the same content, written again
  CHECK(reader.read(nodes) == Payloads(1));
}

TEST_CASE("content whose key is not its own is not written", "[tier]") {
  const TemporaryFolder folder;
  Owner owner(options_of(folder.path()), [](const ChainKey&, std::span<const TokenId>) { return ChainKey{1, 2}; });
  const PrefixNode first = owner.chain(1, 1)[0];
  const PrefixNode other = owner.child(owner.index.acquire_root(""), made_tokens(4, 2));
  CHECK_FALSE(owner.put(other, payload_of(2)));
  CHECK_FALSE(owner.put(owner.child(first, made_tokens(4, 3)), payload_of(3)));
  CHECK(owner.read({first}) == Payloads({payload_of(1)}));
}

TEST_CASE("a folder that another process uses is not taken for a leftover", "[tier]") {
  const TemporaryFolder folder;
  DiskTierOptions small = options_of(folder.path(), 8);
  small.max_bytes = 250;
  Owner(options_of(folder.path(), 6)).chain(1, 1);  // ended
  Owner other(options_of(folder.path(), 7));
  const std::vector<PrefixNode> nodes = other.chain(2, 1);
  Owner owner(small);
  CHECK(other.read(nodes) == Payloads({payload_of(1), payload_of(2)}));
  CHECK(records_in(folder.path()).size() == 2);
}

TEST_CASE("while the folder's thread hangs, the engine's reads, writes and removals are queued at once", "[tier]") {
  const TemporaryFolder folder;
  Owner(options_of(folder.path())).chain(4, 1);
  std::promise<void> goes_on;
  const std::shared_future<void> gone_on = goes_on.get_future().share();
  DiskTierOptions options = options_of(folder.path());
  options.max_bytes = 900;  // four records of 212 bytes
  Owner owner(options, content_hash, [gone_on] { gone_on.wait(); });
  REQUIRE(owner.tier.num_records() == 4);
  owner.tier.read(owner.index, owner.find(1, 1).at(0));
  const PrefixNode node = owner.child(owner.index.acquire_root(""), made_tokens(4, 50));
  owner.index.add_user(node);
  CHECK(owner.tier.put(owner.index, node, std::make_shared<const std::vector<std::byte>>(payload_of(50))));
  CHECK(owner.tier.num_records() == 4);  // the end of the chain has left
  CHECK(records_in(folder.path()).size() == 4);
  goes_on.set_value();
  owner.settle();
  CHECK(owner.arrived.size() == 1);
  CHECK(owner.find(1, 50).size() == 1);
  CHECK(records_in(folder.path()).size() == 4);
  owner.index.check_integrity();
}

TEST_CASE("where writing fails the tier is off for a while, and continues afterwards", "[tier]") {
  const TemporaryFolder folder;
  DiskTierOptions options = options_of(folder.path());
  options.pause = GENERATE(std::chrono::milliseconds(0), std::chrono::hours(1));
  Owner owner(options);
  owner.chain(1, 1);
  const fs::path place = records_in(folder.path()).at(0).parent_path();
  fs::remove_all(place);
  std::ofstream(place.string()) << "";  // nothing can be written below a file
  const PrefixNode node = owner.child(owner.index.acquire_root(""), made_tokens(4, 20));
  owner.index.add_user(node);
  CHECK(owner.put(node, payload_of(20)));  // taken, and lost
  CHECK_FALSE(owner.tier.contains(node));
  CHECK_FALSE(owner.tier.can_take(100));
  fs::remove(place);
  owner.settle();
  owner.tier.can_take(100);
  owner.settle();
  CHECK(owner.tier.can_take(100) == (options.pause.count() == 0));
  CHECK(owner.put(node, payload_of(20)) == (options.pause.count() == 0));
  owner.index.check_integrity();
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
  options.engine.identity.model.files = "fake";
  return options;
}

}  // namespace

TEST_CASE("after a restart the first repeated conversation is served from the disk", "[tier][engine]") {
  const TemporaryFolder folder;
  const std::vector<TokenId> prompt = made_tokens(41, 1);
  std::vector<TokenId> expected;
  {
    Harness harness(with_tier(folder.path()));
    harness.engine.start();
    expected = served(harness.engine, prompt, 10).first;
  }
  const bool damaged = GENERATE(false, true);
  if (damaged) {
    REQUIRE(records_in(folder.path()).size() >= 10);
    for (const fs::path& file : records_in(folder.path())) {
      if (read_record_head(file)->position == 5) flip_bit(file, static_cast<std::streamoff>(fs::file_size(file)) - 1);
    }
  }
  Harness harness(with_tier(folder.path()));
  harness.engine.start();
  const auto [tokens, info] = served(harness.engine, prompt, 10);
  CHECK(tokens == expected);
  CHECK(info.num_cached_tokens == (damaged ? 20 : 40));
  CHECK(harness.engine.stats().num_blocks_restored == (damaged ? 5 : 10));
}

TEST_CASE("after a restart a conversation of windows is served from the disk", "[tier][engine][window][states]") {
  const TemporaryFolder folder;
  const std::vector<TokenId> prompt = made_tokens(121, 1);
  HarnessOptions options = with_tier(folder.path());
  options.window = 12;
  options.recurs = GENERATE(false, true);
  options.engine.num_window_parts = WindowPool::least_parts(options.window, options.block_size);
  std::vector<TokenId> expected;
  {
    Harness harness(options);
    harness.engine.start();
    expected = served(harness.engine, prompt, 10).first;
  }
  Harness harness(options);
  harness.engine.start();
  const auto [tokens, info] = served(harness.engine, prompt, 10);
  CHECK(tokens == expected);
  // The prompt's last block was no longer the end of the sequence, but the window before its border was kept.
  CHECK(info.num_cached_tokens >= 121 - 32 - 4);
  CHECK(harness.engine.stats().num_blocks_restored >= 22);
}

TEST_CASE("blocks move where nothing is computed, and no step is counted", "[tier][engine]") {
  const TemporaryFolder folder;
  HarnessOptions options = with_tier(folder.path());
  options.deferred_seed = GENERATE(std::optional<std::uint32_t>(), std::optional<std::uint32_t>(4));
  Harness harness(options);
  harness.engine.start();
  served(harness.engine, made_tokens(41, 1), 10);
  const std::uint64_t num_steps = harness.engine.stats().num_steps;
  harness.engine.stop();  // stopping writes the cached blocks
  CHECK(records_in(folder.path()).size() == 12);
  CHECK(harness.engine.stats().num_steps == num_steps);
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
  Harness harness(with_tier(folder.path(), 16));
  harness.engine.start();
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 6; ++i) {
      CHECK(served(harness.engine, made_tokens(40, i), 8).first == expected[static_cast<std::size_t>(i)]);
    }
  }
  harness.engine.stop();
  CHECK(harness.engine.stats().num_blocks_used == 0);
}

TEST_CASE("three processes on one folder say what each says alone", "[tier][engine]") {
  const TemporaryFolder folder;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::vector<TokenId>> expected;
  for (int i = 0; i < 6; ++i) {  // the same tokens after different beginnings
    std::vector<TokenId> prompt = made_tokens(8, i);
    const std::vector<TokenId> shared = made_tokens(176, 77);
    prompt.insert(prompt.end(), shared.begin(), shared.end());
    Harness harness;
    const auto sink = harness.submit(request_of(prompt, 8));
    harness.run();
    prompts.push_back(std::move(prompt));
    expected.push_back(sink->choices[0].tokens);
  }
  {
    Harness first(with_tier(folder.path()));
    Harness second(with_tier(folder.path()));
    first.engine.start();
    second.engine.start();
    for (std::size_t i = 0; i < 6; ++i)
      CHECK(served((i % 2 == 0 ? first : second).engine, prompts[i], 8).first == expected[i]);
  }
  Harness third(with_tier(folder.path()));
  third.engine.start();
  for (std::size_t i = 0; i < 6; ++i)
    CHECK(served(third.engine, prompts[i], 8).first == expected[i]);
  CHECK(third.engine.stats().num_blocks_restored > 0);
}

TEST_CASE("requests are served although nothing can be written or read below", "[tier][engine]") {
  const TemporaryFolder folder;
  std::vector<TokenId> expected;
  {
    Harness harness(with_tier(folder.path()));
    harness.engine.start();
    expected = served(harness.engine, made_tokens(41, 1), 10).first;
  }
  Harness harness(with_tier(folder.path(), 16));
  harness.engine.start();
  CHECK(served(harness.engine, made_tokens(41, 2), 4).first.size() == 4);
  const fs::path place = records_in(folder.path()).at(0).parent_path();
  fs::remove_all(place);
  std::ofstream(place.string()) << "";
  for (int i = 3; i < 9; ++i)
    CHECK(served(harness.engine, made_tokens(41, i), 4).first.size() == 4);
  CHECK(served(harness.engine, made_tokens(41, 1), 10).first == expected);
}
