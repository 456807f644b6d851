#include <catch2/catch.hpp>
#include <cmath>

#include "core/model/layers/loaded_model.h"
#include "core/model/tools/synth.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/model_runner.h"
#include "tests/unit/model/reference/reference_model.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr double kRandomLimit = 1e-3;

SynthSpec small_spec(const std::string& shape, const std::string& types) {
  SynthSpec spec = find_synth_shape(shape).value();
  spec.types = find_synth_types(types).value();
  return spec;
}

std::vector<std::int32_t> some_tokens(std::int32_t count) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < count; ++i)
    ids.push_back((i * 101 + 7) % 380);
  return ids;
}

double relative_difference(const Logits& logits, const std::vector<std::vector<double>>& exact) {
  REQUIRE(logits.size() == exact.size());
  double worst = 0.0;
  for (std::size_t row = 0; row < exact.size(); ++row) {
    REQUIRE(logits[row].size() == exact[row].size());
    double scale = 0.0;
    double difference = 0.0;
    for (std::size_t i = 0; i < exact[row].size(); ++i) {
      scale = std::max(scale, std::fabs(exact[row][i]));
      // Written so that a NaN counts as the worst.
      const double d = std::fabs(exact[row][i] - static_cast<double>(logits[row][i]));
      difference = d >= 0.0 ? std::max(difference, d) : 1e9;
    }
    worst = std::max(worst, difference / scale);
  }
  return worst;
}

// Compares every level with the reference that rounds like it and, loosely, with the one that does not round.
void check_levels(const SynthSpec& spec, std::int32_t num_tokens) {
  const TemporaryFolder folder;
  const auto path = folder / "model.gguf";
  write_synthetic_gguf(spec, path, {});
  const auto model = open_model(path);
  const auto weights = GgufFile::open(path);
  const std::vector<std::int32_t> ids = some_tokens(num_tokens);
  const auto exact = ReferenceModel(spec.config, *weights, Rounding::kNone).logits(ids);
  for (const std::string& isa : supported_isa_levels()) {
    INFO(spec.name << " " << spec.types.name << " on " << isa);
    ModelRunner runner(*model, isa);
    const Logits logits = runner.append(ids);
    const ReferenceModel reference(spec.config, *weights, rounding_of(isa));
    CHECK(relative_difference(logits, reference.logits(ids, runner.take_recording())) < kRandomLimit);
    CHECK(relative_difference(logits, exact) < 0.05);
  }
}

}  // namespace

TEST_CASE("Every architecture agrees with the double-precision reference", "[model][reference]") {
  for (const char* shape : {"tiny-llama", "tiny-qwen2", "tiny-qwen3"}) {
    SynthSpec spec = small_spec(shape, "F32");
    check_levels(spec, 40);
    spec.config.tied_head = false;
    check_levels(spec, 8);
  }
}

TEST_CASE("Every tensor type agrees with the double-precision reference", "[model][reference][.long]") {
  for (const std::string& types : synth_type_names())
    check_levels(small_spec("tiny-qwen3", types), 8);
  check_levels(small_spec("tiny-llama", "Q4_K_M"), 20);
  check_levels(small_spec("tiny-qwen2", "Q8_0"), 20);
}

TEST_CASE("Every RoPE scaling agrees with the double-precision reference", "[model][reference][.long]") {
  SynthSpec spec = small_spec("tiny-llama", "F32");
  spec.config.rope.factor = 4.0;
  spec.config.rope.original_context = 32.0;
  for (const RopeScaling scaling : {RopeScaling::kLinear, RopeScaling::kLlama3, RopeScaling::kYarn}) {
    spec.config.rope.scaling = scaling;
    check_levels(spec, 60);
  }
  spec.config.rope.scaling = RopeScaling::kNone;
  spec.config.rope.rotary_dim = 32;  // half of each head
  check_levels(spec, 40);
}
