#include <catch2/catch.hpp>
#include <cmath>

#include "core/base/result.h"
#include "core/model/layers/loaded_model.h"
#include "core/model/tools/synth.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/hf/hf_directory.h"
#include "tests/unit/model/model_runner.h"

using Catch::Contains;
using namespace quire;
using namespace quire::test;

namespace {

SynthSpec spec_of(const std::string& shape) {
  SynthSpec spec = find_synth_shape(shape).value();
  spec.types = find_synth_types("F32").value();
  return spec;
}

Logits logits_of(const std::filesystem::path& path) {
  const std::vector<std::int32_t> ids{5, 200, 17, 300, 8, 8, 150, 42, 77, 260, 31, 119};
  return ModelRunner(*open_model(path), "scalar").append(ids);
}

// The largest difference as a part of the largest logit.
double logits_difference(const Logits& a, const Logits& b) {
  REQUIRE(a.size() == b.size());
  float scale = 0.0F;
  float worst = 0.0F;
  for (std::size_t row = 0; row < a.size(); ++row) {
    REQUIRE(a[row].size() == b[row].size());
    for (std::size_t i = 0; i < a[row].size(); ++i) {
      scale = std::max(scale, std::fabs(a[row][i]));
      worst = std::max(worst, std::fabs(a[row][i] - b[row][i]));
    }
  }
  REQUIRE(scale > 0.0F);
  return static_cast<double>(worst / scale);
}

void check_both_forms(const SynthSpec& spec, const HfDirectoryOptions& options, double limit) {
  const TemporaryFolder folder;
  write_synthetic_gguf(spec, folder / "model.gguf", {});
  write_hf_directory(folder / "model.gguf", spec.config, options, folder / "hf");
  CHECK(logits_difference(logits_of(folder / "model.gguf"), logits_of(folder / "hf")) < limit);
}

}  // namespace

TEST_CASE("A Hugging Face directory computes what its GGUF conversion does", "[model][hf]") {
  for (const char* shape : {"tiny-llama", "tiny-qwen2", "tiny-qwen3"}) {
    INFO(shape);
    SynthSpec spec = spec_of(shape);
    check_both_forms(spec, {}, 1e-5);
    spec.config.tied_head = false;
    check_both_forms(spec, {.num_shards = 3}, 1e-5);
  }
  check_both_forms(spec_of("tiny-qwen3"), {.bare_names = true}, 1e-5);
  check_both_forms(spec_of("tiny-llama"), {.head_name_only = true}, 1e-5);
  check_both_forms(spec_of("tiny-llama"), {.type = DType::kF16}, 0.01);
  check_both_forms(spec_of("tiny-llama"), {.type = DType::kBF16}, 0.05);
}

TEST_CASE("A Hugging Face directory's RoPE scaling is that of its GGUF conversion", "[model][hf]") {
  SynthSpec spec = spec_of("tiny-llama");
  spec.config.rope.factor = 4.0;
  spec.config.rope.original_context = 8.0;
  for (const RopeScaling scaling : {RopeScaling::kLinear, RopeScaling::kLlama3, RopeScaling::kYarn}) {
    spec.config.rope.scaling = scaling;
    check_both_forms(spec, {}, 1e-5);
  }
}

TEST_CASE("A Hugging Face directory that lacks a part is refused by the part's name", "[model][hf]") {
  const TemporaryFolder folder;
  SynthSpec spec = spec_of("tiny-qwen2");
  write_synthetic_gguf(spec, folder / "model.gguf", {});
  const auto fresh = [&] {
    std::filesystem::remove_all(folder / "hf");
    write_hf_directory(folder / "model.gguf", spec.config, {}, folder / "hf");
  };
  for (const char* part : {"config.json", "tokenizer.json"}) {
    fresh();
    std::filesystem::remove(folder / "hf" / part);
    CHECK_THROWS_WITH(open_model(folder / "hf"), Contains(part) && Contains("is missing"));
  }
  fresh();
  std::filesystem::remove(folder / "hf" / "model.safetensors");
  CHECK_THROWS_WITH(open_model(folder / "hf"), Contains("has neither model.safetensors") && Contains("download"));
  fresh();
  folder.write("hf/config.json", "{");
  CHECK_THROWS_WITH(open_model(folder / "hf"), Contains("config.json: is not valid JSON"));
  fresh();
  folder.write("hf/chat_template.jinja", "{{ messages }}");
  CHECK(open_model(folder / "hf")->chat_template() == "{{ messages }}");
  folder.write("hf/generation_config.json", R"({"temperature": 0.25})");
  CHECK(open_model(folder / "hf")->generation_defaults().temperature == 0.25F);
  CHECK(open_model(folder / "hf")->info().pooling == Pooling::kLast);
  std::filesystem::create_directory(folder / "hf" / "1_Pooling");
  folder.write("hf/1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  CHECK(open_model(folder / "hf")->info().pooling == Pooling::kMean);
}
