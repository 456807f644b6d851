// Every family's tiny model on the emulated GPU, whose streams complete late and in any order, beside the CPU backend:
// the same numbers but for the last bits, and the same next tokens.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "core/model/tools/synth.h"
#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/gpu_backend.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/model_runner.h"

namespace quire::test {
namespace {

constexpr double kLimit = 1e-4;  // relative to the largest value

std::unique_ptr<Backend> emulated_gpu(std::uint64_t seed) {
  return gpu::make_gpu_backend(std::make_unique<gpu::EmulatedDevice>(gpu::EmulatedDeviceOptions{.seed = seed}),
                               {.name = "cuda-emulated"});
}

std::vector<std::int32_t> tokens_of_a_sequence(std::int32_t count) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < count; ++i)
    ids.push_back((i * 101 + 7) % 380);
  return ids;
}

// The model's outputs for `count` tokens: a decoder in two steps, others at once.
Logits outputs_of(const ModelInfo& info, ModelRunner& runner, std::int32_t count) {
  const std::vector<std::int32_t> ids = tokens_of_a_sequence(count);
  if (info.num_labels > 0) return runner.append_labels(ids);
  if (!info.has_head) return runner.append_hidden(ids);
  return info.is_causal ? runner.append_chunked(ids, static_cast<std::size_t>(count) - 3) : runner.append(ids);
}

void check_same(const Logits& got, const Logits& expected) {
  REQUIRE(got.size() == expected.size());
  double worst = 0.0;
  double largest = 0.0;
  for (std::size_t row = 0; row < expected.size(); ++row) {
    REQUIRE(got[row].size() == expected[row].size());
    for (std::size_t i = 0; i < expected[row].size(); ++i) {
      const double wanted = static_cast<double>(expected[row][i]);
      const double d = std::fabs(static_cast<double>(got[row][i]) - wanted);
      worst = d >= 0.0 ? std::max(worst, d) : 1e9;  // a NaN counts as the worst
      largest = std::max(largest, std::fabs(wanted));
    }
    CHECK(argmax(got[row]) == argmax(expected[row]));
  }
  CHECK(worst <= kLimit * largest);
}

struct TinyModel {
  explicit TinyModel(const std::string& name) {
    SynthSpec spec = find_synth_shape(name).value();
    spec.types = find_synth_types("F32").value();
    write_synthetic_gguf(spec, folder / "model.gguf", {});
    model = open_model(folder / "model.gguf", false);
  }
  TemporaryFolder folder;
  std::shared_ptr<const LoadedModel> model;
};

void check_family(const std::string& name, std::int32_t count) {
  INFO(name);
  const TinyModel tiny(name);
  ModelRunner cpu(*tiny.model, "scalar", KvDType::kF32, 1);
  ModelRunner gpu(*tiny.model, emulated_gpu(1));
  check_same(outputs_of(tiny.model->info(), gpu, count), outputs_of(tiny.model->info(), cpu, count));
}

}  // namespace

TEST_CASE("every family gives on the GPU what it gives on the processor", "[families]") {
  for (const std::string& name : family_shape_names()) {
    if (name.starts_with("tiny-")) check_family(name, 7);
  }
}

TEST_CASE("every family generates greedily on the GPU as on the processor", "[families][.][long]") {
  for (const std::string& name : family_shape_names()) {
    if (!name.starts_with("tiny-")) continue;
    check_family(name, 40);
    INFO(name);
    const TinyModel tiny(name);
    if (!tiny.model->info().has_head || !tiny.model->info().is_causal) continue;
    const std::vector<std::int32_t> prompt = tokens_of_a_sequence(20);
    ModelRunner cpu(*tiny.model, "scalar", KvDType::kF32, 1);
    ModelRunner gpu(*tiny.model, emulated_gpu(2));
    CHECK(gpu.greedy(prompt, 24) == cpu.greedy(prompt, 24));
  }
}

}  // namespace quire::test
