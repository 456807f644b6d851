// A disk that refuses any one write, sync or rename below the engine: what was kept before is kept, and no text
// changes.
#include <catch2/catch.hpp>
#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "core/kv/moves/chain_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/engine/file_failures.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace file_failure {

constexpr FileStep kSteps[] = {FileStep::kWrite, FileStep::kSync, FileStep::kRename};

KeptChain chain_of(int seed, std::size_t payload_bytes) {
  KeptChain chain;
  chain.content.tokens = made_tokens(8, seed);
  for (int i = 0; i < 2; ++i) {
    chain.payloads.push_back(
        std::make_shared<const std::vector<std::byte>>(payload_bytes, static_cast<std::byte>(seed + i)));
  }
  return chain;
}

// Returns all tokens of a conversation's answers, served by an engine of its own over the folder.
std::vector<TokenId> converse(const std::filesystem::path& folder) {
  HarnessOptions options{.num_blocks = 16};
  options.engine.kv_cache.disk_tier_path = folder.string();
  options.engine.identity.model.files = "fake";
  Harness harness(options);
  std::vector<TokenId> said;
  for (int turn = 0; turn < 3; ++turn) {
    const auto sink = harness.submit(request_of(made_tokens(41, turn % 2), 6));
    while (!sink->finished())  // the disk may have to be waited for
      harness.step();
    said.insert(said.end(), sink->choices[0].tokens.begin(), sink->choices[0].tokens.end());
  }
  return said;
}

}  // namespace file_failure

using namespace file_failure;

TEST_CASE("a slot whose saving fails at any step leaves the one before, and no other file", "[slots]") {
  const FileStep step = GENERATE(from_range(std::begin(kSteps), std::end(kSteps)));
  int num_failed = 0;
  for (std::int64_t n = 0;; ++n) {
    INFO("step " << static_cast<int>(step) << ", number " << n);
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "slot";
    REQUIRE(write_chain(path, chain_of(1, 100)));
    fail_next_file_step(step, n);
    const bool is_written = write_chain(path, chain_of(2, 50'000)).has_value();
    const bool has_failed = !forget_file_failure();
    const auto read = read_chain(path, 1 << 20);
    REQUIRE(read);
    CHECK(read->content.tokens == made_tokens(8, is_written ? 2 : 1));
    CHECK(is_written != has_failed);
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
    num_failed += has_failed ? 1 : 0;
    if (!has_failed) break;
  }
  CHECK(num_failed > 0);
}

TEST_CASE("a tier whose disk fails at any step changes no text, in this process and the next", "[tier][engine]") {
  std::vector<TokenId> expected;
  {
    const TemporaryFolder folder;
    expected = converse(folder.path());
  }
  const FileStep step = GENERATE(FileStep::kWrite, FileStep::kRename);
  int num_failed = 0;
  for (std::int64_t n = 0; n < 100; ++n) {
    INFO("step " << static_cast<int>(step) << ", number " << n);
    const TemporaryFolder folder;
    fail_next_file_step(step, n);
    CHECK(converse(folder.path()) == expected);
    const bool has_failed = !forget_file_failure();
    CHECK(converse(folder.path()) == expected);
    num_failed += has_failed ? 1 : 0;
    if (!has_failed) break;
  }
  CHECK(num_failed > 0);
}
