#include "server/cli/recommend.h"

#include <catch2/catch.hpp>
#include <set>

using quire::cli::recommend;

namespace {

std::vector<std::string> names(std::uint64_t gigabytes, double gigabytes_per_second) {
  std::vector<std::string> names;
  for (const auto& model : recommend(gigabytes * 1'000'000'000, gigabytes_per_second * 1e9))
    names.push_back(model.reference);
  return names;
}

}  // namespace

TEST_CASE("three models are recommended that fit, the best first, as fast as memory allows") {
  // All fit: the best reads 19.8 GB for a token, the others their experts in use.
  CHECK(names(64, 60.0) == std::vector<std::string>{"Qwen/Qwen3-32B-GGUF:Q4_K_M", "Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M",
                                                    "ggml-org/gpt-oss-20b-GGUF:MXFP4"});
  // Eight gigabytes: 8B fits but is slow here.
  CHECK(names(8, 40.0) == std::vector<std::string>{"Qwen/Qwen3-8B-GGUF:Q4_K_M", "Qwen/Qwen3-4B-GGUF:Q4_K_M",
                                                   "Qwen/Qwen3-0.6B-GGUF:Q8_0"});
  // Reading is slow: the best are left out, although they fit.
  CHECK(names(64, 6.0) == std::vector<std::string>{"Qwen/Qwen3-4B-GGUF:Q4_K_M", "Qwen/Qwen3-1.7B-GGUF:Q8_0",
                                                   "Qwen/Qwen3-0.6B-GGUF:Q8_0"});
  CHECK(names(3, 40.0) == std::vector<std::string>{"Qwen/Qwen3-0.6B-GGUF:Q8_0"});
  CHECK(names(1, 40.0).empty());
  CHECK(recommend(8'000'000'000, 40e9).front().most_tokens_per_second == Approx(40.0 / 5.03));
}

TEST_CASE("what is recommended is distinct and fits, on machines of every kind") {
  for (std::uint64_t gigabytes = 2; gigabytes < 200; ++gigabytes) {
    for (const double rate : {0.0, 1.0, 5.0, 20.0, 80.0, 300.0}) {
      const auto models = recommend(gigabytes * 1'000'000'000, rate * 1e9);
      std::set<std::string> distinct;
      for (const auto& model : models) {
        CHECK(model.file_bytes < gigabytes * 1'000'000'000);
        distinct.insert(model.reference);
      }
      CHECK(distinct.size() == models.size());
      if (gigabytes >= 5) CHECK(models.size() == 3);
    }
  }
}
