// Models on several emulated devices: the same bits in every order of the devices' streams, and failures of one of
// them.
#include <catch2/catch.hpp>

#include "tests/parallel/backend_runner.h"
#include "tests/parallel/emulated_ranks.h"

namespace quire::test {

TEST_CASE("one rank gives the bits of the plain backend", "[parallel]") {
  const auto model = emulated_model("tiny-llama", "Q8_0");
  const Tokens ids = some_tokens(9);
  CHECK(BackendRunner(*model, emulated_ranks(rank_options(1, 1))).step({ids}) ==
        BackendRunner(*model, one_device()).step({ids}));
}

TEST_CASE("several devices compute what one computes, with the same bits in every order, chunk and company",
          "[parallel]") {
  struct Case {
    const char* shape;
    const char* types;
    int num_ranks;
  };
  for (const Case& each : {Case{"tiny-llama", "Q8_0", 2},
                           {"tiny-llama", "Q4_K", 4},
                           {"tiny-qwen2", "F16", 2},
                           {"tiny-qwen3", "Q8_0", 4},
                           {"tiny-mixtral", "Q8_0", 2}}) {
    INFO(each.shape << " of " << each.types << " on " << each.num_ranks);
    const auto model = emulated_model(each.shape, each.types);
    const Tokens ids = some_tokens(9);
    const Logits alone = BackendRunner(*model, one_device()).step({ids});
    const Logits expected = BackendRunner(*model, emulated_ranks(rank_options(each.num_ranks, 0))).step({ids});
    CHECK(difference(expected, alone) < 2e-3);
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      BackendRunner runner(*model, emulated_ranks(rank_options(each.num_ranks, seed)));
      CHECK(runner.backend().name().ends_with("/tp" + std::to_string(each.num_ranks)));
      CHECK(runner.chunked(ids, 4) == expected);
      CHECK(runner.step({some_tokens(3, 50), ids}).back() == expected.back());
    }
  }
}

TEST_CASE("a wait for another device that is left out is found", "[parallel]") {
  const auto model = emulated_model("tiny-llama", "Q8_0");
  const Tokens ids = some_tokens(5);
  const Logits expected = BackendRunner(*model, emulated_ranks(rank_options(2, 0))).step({ids});
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    auto options = rank_options(2, seed);
    options[1].ignore_waits = true;
    found += BackendRunner(*model, emulated_ranks(options)).step({ids}) != expected ? 1 : 0;
  }
  CHECK(found > 0);
}

TEST_CASE("a device that fails in a pass fails it once, whichever device it is, and holds up no other", "[parallel]") {
  const auto model = emulated_model("tiny-mixtral", "Q8_0");  // routing waits for the device in the middle of a pass
  const Tokens ids = some_tokens(3);
  for (const std::size_t failing : {0U, 1U}) {
    for (const int launch : {0, 3, 11, 25}) {
      INFO("launch " << launch << " of device " << failing);
      auto options = rank_options(2, 5);
      options[failing].failing_launch = launch;
      BackendRunner runner(*model, emulated_ranks(options));
      const std::string what = "GPU " + std::to_string(failing) + " failed in a kernel";
      CHECK_THROWS_WITH(runner.step({ids}), what);
      CHECK_THROWS_WITH(runner.step({ids}), what);
      CHECK_THROWS_WITH(runner.backend().synchronize(), what);
    }
  }
}

TEST_CASE("after a pass for which one device had no memory the next one has the right bits", "[parallel]") {
  const auto model = emulated_model("tiny-llama", "Q8_0");
  const Tokens ids = some_tokens(6);
  const Logits expected = BackendRunner(*model, emulated_ranks(rank_options(2, 0))).step({ids});
  int num_failed = 0;
  // Beyond the allocations of loading are those of a first pass.
  for (int number = 0; number < 80; ++number) {
    auto options = rank_options(2, 3);
    options[1].failing_allocation = number;
    std::unique_ptr<BackendRunner> runner;
    try {
      runner = std::make_unique<BackendRunner>(*model, emulated_ranks(options));
    } catch (const DeviceError&) {
      continue;
    }
    try {
      runner->step({ids});
    } catch (const DeviceError& error) {
      CHECK_THAT(error.what(), Catch::Contains("GPU 1 has no "));
      ++num_failed;
    }
    CHECK(runner->step({ids}) == expected);
    if (num_failed > 2) break;
  }
  CHECK(num_failed > 2);
}

}  // namespace quire::test
