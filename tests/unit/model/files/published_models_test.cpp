#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "core/model/layers/loaded_model.h"
#include "tests/support/material.h"
#include "tests/unit/model/model_runner.h"

using namespace quire;
using namespace quire::test;

namespace {

// The references of the material: 48 greedy ids and the logits after the prompt, computed in 64-bit arithmetic.
void check_against_reference(const std::filesystem::path& model_path, const std::filesystem::path& reference_path,
                             std::span<const std::string> isa_levels, KvDType kv_dtype) {
  const auto model = open_model(model_path);
  const auto cases = nlohmann::json::parse(read_file(reference_path));
  for (const std::string& isa : isa_levels) {
    ModelRunner runner(*model, isa, kv_dtype);
    for (const auto& reference : cases) {
      INFO(isa << ": " << reference.at("prompt"));
      const auto prompt = reference.at("prompt_ids").get<std::vector<std::int32_t>>();
      const auto expected = reference.at("greedy_ids").get<std::vector<std::int32_t>>();
      CHECK(runner.greedy(prompt, expected.size()) == expected);

      runner.reset();
      const std::vector<float> logits = runner.append(prompt).back();
      const auto exact = reference.at("full_logits_after_prompt").get<std::vector<double>>();
      REQUIRE(logits.size() == exact.size());
      double scale = 0.0;
      double difference = 0.0;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        scale = std::max(scale, std::fabs(exact[i]));
        difference = std::max(difference, std::fabs(exact[i] - static_cast<double>(logits[i])));
      }
      CHECK(difference / scale < (kv_dtype == KvDType::kF32 ? 1e-3 : 3e-3));  // f16 rounds K and V
    }
  }
}

// Types of K and V: the reference's, and Quire's default.
constexpr KvDType kBoth[] = {KvDType::kF32, KvDType::kF16};

void check_stories(std::span<const std::string> isa_levels, std::span<const KvDType> kv_dtypes) {
  QUIRE_REQUIRE_MATERIAL(folder, "weights/stories260K-gguf");
  for (const KvDType kv_dtype : kv_dtypes)
    check_against_reference(folder / "stories260K.gguf", folder / "greedy-f64-reference.dev.json.gz", isa_levels,
                            kv_dtype);
}

void check_tiny_stories(std::span<const std::string> isa_levels, std::span<const KvDType> kv_dtypes) {
  QUIRE_REQUIRE_MATERIAL(folder, "weights/TinyStories-656K-hf");
  for (const KvDType kv_dtype : kv_dtypes)
    check_against_reference(folder, folder / "greedy-f64-reference.dev.json.gz", isa_levels, kv_dtype);
}

}  // namespace

TEST_CASE("stories260K and TinyStories-656K continue as the 64-bit reference does on the best level", "[model]") {
  const std::vector<std::string> best{best_isa_level()};
  check_stories(best, std::span(kBoth).last(1));
  check_tiny_stories(best, std::span(kBoth).last(1));
}

TEST_CASE("stories260K continues as the 64-bit reference does on every level", "[model][.long]") {
  check_stories(supported_isa_levels(), kBoth);
}

TEST_CASE("TinyStories-656K continues as the 64-bit reference does on every level", "[model][.long]") {
  check_tiny_stories(supported_isa_levels(), kBoth);
}
