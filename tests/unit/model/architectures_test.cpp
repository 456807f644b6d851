// Every model of the material's architectures against the outputs of another engine.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/support/material.h"
#include "tests/unit/model/exam.h"
#include "tests/unit/model/model_runner.h"

using namespace quire::test;

namespace {

constexpr double kLogitTolerance = 1e-4;
constexpr double kEmbeddingTolerance = 1e-5;
// Quantised experts meet activations rounded to eight bits.
constexpr double kQuantisedTolerance = 0.3;

std::vector<std::filesystem::path> models_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}

void check_model(const std::filesystem::path& folder, const std::filesystem::path& model) {
  const ExamReference reference = read_exam(folder / "reference.json");
  const bool is_quantised = folder.filename() == "gpt-oss-mxfp4";
  const double tolerance = is_quantised             ? kQuantisedTolerance
                           : reference.is_embedding ? kEmbeddingTolerance
                                                    : kLogitTolerance;
  for (const std::size_t chunk : {std::size_t{0}, std::size_t{16}}) {
    if (chunk != 0 && reference.is_embedding) continue;
    const ExamResult result = take_exam(model, reference, chunk, chunk == 0);
    INFO("chunk " << chunk << ": worst " << result.worst << " at " << result.where);
    CHECK(result.worst <= tolerance);
    CHECK(result.greedy_agrees);
  }
}

void check_folder(const std::filesystem::path& folder) {
  for (const auto& model : models_in(folder)) {
    const std::string name = model.filename().string();
    INFO(name);
    CHECK_NOTHROW(check_model(model, model / "model.gguf"));
  }
}

}  // namespace

TEST_CASE("Every architecture gives the logits that another engine gives", "[model][architectures]") {
  QUIRE_REQUIRE_MATERIAL(folder, "architectures/given");
  check_folder(folder);
}

TEST_CASE("Further architectures give the logits that another engine gives", "[model][architectures][extra]") {
  QUIRE_REQUIRE_MATERIAL(folder, "architectures/extra");
  check_folder(folder);
}

TEST_CASE("Every Hugging Face directory gives the logits that another engine gives", "[model][architectures][hf]") {
  QUIRE_REQUIRE_MATERIAL(folder, "architectures/hf");
  for (const auto& model : models_in(folder)) {
    const std::string name = model.filename().string();
    INFO(name);
    CHECK_NOTHROW(check_model(model, model));
  }
}

TEST_CASE("Every architecture gives the same bits alone, in a batch and token by token", "[model][architectures]") {
  QUIRE_REQUIRE_MATERIAL(folder, "architectures/given");
  for (const auto& model : models_in(folder)) {
    const std::string name = model.filename().string();
    INFO(name);
    const ExamReference reference = read_exam(model / "reference.json");
    if (reference.is_embedding) continue;
    const auto loaded = quire::open_model(model / "model.gguf", false);
    ModelRunner runner(*loaded, kVectorIsa, quire::KvDType::kF16, 2);
    std::vector<std::vector<std::int32_t>> prompts;
    for (const ExamPrompt& prompt : reference.prompts)
      prompts.push_back(prompt.ids);
    const std::vector<Logits> together = runner.append_together(prompts);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      runner.reset();
      CHECK(runner.append(prompts[i]) == together[i]);
    }
    runner.reset();
    CHECK(runner.append_chunked(prompts[1], 1) == together[1]);
  }
}
