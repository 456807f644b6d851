#include "tests/parallel/emulated_ranks.h"

#include "core/model/tools/synth.h"
#include "kernels/gpu/ranks/gpu_ranks.h"
#include "tests/support/temporary_folder.h"

namespace quire::test {

std::shared_ptr<const LoadedModel> emulated_model(const std::string& shape, const std::string& types) {
  const TemporaryFolder folder;
  SynthSpec spec = find_synth_shape(shape).value();
  spec.types = find_synth_types(types).value();
  if (spec.family) {
    spec.family->keys += " kv=4 ff=128";
  } else {
    spec.config.num_heads = types == "Q4_K" ? 16 : 4;
    spec.config.num_kv_heads = 4;
    spec.config.ffn_size = types == "Q4_K" ? 1024 : 288;
    spec.config.num_layers = 1;
  }
  write_synthetic_gguf(spec, folder / "model.gguf", {});
  return open_model(folder / "model.gguf");
}

std::vector<gpu::EmulatedDeviceOptions> rank_options(int count, std::uint64_t seed) {
  std::vector<gpu::EmulatedDeviceOptions> out(static_cast<std::size_t>(count));
  for (gpu::EmulatedDeviceOptions& each : out) {
    each.seed = seed == 0 ? 0 : seed * 10 + static_cast<std::uint64_t>(&each - out.data());
    each.label = "GPU " + std::to_string(&each - out.data());
  }
  return out;
}

std::unique_ptr<ParallelBackend> emulated_ranks(std::vector<gpu::EmulatedDeviceOptions> options) {
  const auto machine = std::make_shared<gpu::EmulatedMachine>();
  std::vector<std::unique_ptr<gpu::Device>> all;
  for (gpu::EmulatedDeviceOptions& each : options) {
    each.machine = machine;
    all.push_back(std::make_unique<gpu::EmulatedDevice>(each));
  }
  return gpu::make_gpu_ranks(std::move(all), {.name = "cuda-emulated"});
}

std::unique_ptr<Backend> one_device(std::uint64_t seed) {
  return gpu::make_gpu_backend(std::make_unique<gpu::EmulatedDevice>(gpu::EmulatedDeviceOptions{.seed = seed}),
                               {.name = "cuda-emulated"});
}

}  // namespace quire::test
