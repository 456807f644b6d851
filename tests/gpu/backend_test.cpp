// The GPU backend: bits promised beyond those of every backend, waits and failures.
#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/gpu_backend.h"
#include "tests/gpu/device_arrays.h"
#include "tests/kernels/attention/attention_scene.h"

namespace quire::test {
namespace {

using gpu::EmulatedDeviceOptions;

std::unique_ptr<Backend> emulated_backend(const EmulatedDeviceOptions& options) {
  return gpu::make_gpu_backend(std::make_unique<gpu::EmulatedDevice>(options), {.name = "cuda-emulated"});
}

std::unique_ptr<Backend> avx512_backend() {
  if (!cpu_levels()[2].supported()) {
    WARN("skipped: this processor has no AVX-512 VNNI");
    return nullptr;
  }
  return make_cpu_backend({.kernels = cpu_levels()[2].table(), .threads = 1, .pin = false});
}

// Rows that see one token, the borders of partitions, and many tokens.
const std::vector<Chunk> kChunks = {{0, 0, 1}, {0, 1, 2}, {1, 0, 300}, {1, 300, 515}};

Matrix attended(Backend& backend, AttentionScene& scene) {
  const auto kv = scene.make_cache(backend);
  Matrix out(scene.num_rows(kChunks), scene.width());
  scene.run(backend, *kv, kChunks, out.view());
  return out;
}

// A norm, a product and gathered rows of it, with a single wait at the end.
std::vector<float> three_operations(Backend& backend, std::span<const std::int32_t> chosen) {
  std::mt19937 random(6);
  const Weights weights = random_weights(random, DType::kQ4_K, 48, 256);
  const WeightSource source = weights.source();
  const auto linear = backend.load_linear({&source, 1}, {});
  Matrix x = random_matrix(random, 12, 256);
  const auto norm = backend.upload(random_floats(random, 256));
  Matrix products(12, 48);
  Matrix gathered(static_cast<std::int64_t>(chosen.size()), 48, 0);
  backend.linear(*linear, normed(x.view(), norm->data(), 1e-5f), products.view(), false);
  backend.gather_rows(products.view(), chosen, gathered.view());
  backend.synchronize();
  return gathered.data;
}

}  // namespace

// Keys of other layers are short enough for tiles, which multiply in 16 bits.
TEST_CASE("attention with long keys on the emulated GPU gives the bits of the CPU level avx512 for caches of 16 bits",
          "[.long]") {
  const auto cpu = avx512_backend();
  if (cpu == nullptr) return;
  for (const KvDType dtype : {KvDType::kF16, KvDType::kBF16}) {
    for (const Heads heads : {Heads{3, 1, 264}, {2, 2, 320}}) {
      INFO("type " << static_cast<int>(dtype) << ", heads " << heads.num_heads << " of " << heads.head_dim);
      AttentionScene scene(5, heads, dtype, {2, 515});
      const Matrix expected = attended(*cpu, scene);
      for (const std::uint64_t seed : {0U, 1U}) {
        const auto gpu = emulated_backend({.seed = seed});
        const Matrix out = attended(*gpu, scene);
        CHECK(std::memcmp(out.data.data(), expected.data.data(), expected.data.size() * sizeof(float)) == 0);
      }
    }
  }
}

TEST_CASE("products with F32 and FP8 weights on the emulated GPU give the bits of the CPU level avx512") {
  const auto cpu = avx512_backend();
  if (cpu == nullptr) return;
  const auto gpu = emulated_backend({.immediate = true});
  for (const DType type : {DType::kF32, DType::kF8}) {
    INFO(dtype_info(type).name);
    std::mt19937 random(3);
    const Weights weights = random_weights(random, type, 70, 288);
    const WeightSource source = weights.source();
    Matrix x = random_matrix(random, 67, 288);
    Matrix expected(67, 70);
    Matrix out(67, 70);
    const auto of_cpu = cpu->load_linear({&source, 1}, {});
    const auto of_gpu = gpu->load_linear({&source, 1}, {});
    cpu->linear(*of_cpu, x.view(), expected.view(), false);
    gpu->linear(*of_gpu, x.view(), out.view(), false);
    gpu->synchronize();
    CHECK(same_rows(out, 0, expected, 0, 67));
  }
}

TEST_CASE("operations see what was enqueued before them in every order of a device, and host arrays as they were") {
  std::vector<std::int32_t> chosen = {11, 0, 5};
  const std::vector<float> right = three_operations(*emulated_backend({.immediate = true}), chosen);
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const auto gpu = emulated_backend({.seed = seed});
    CHECK(three_operations(*gpu, chosen) == right);
    CHECK(three_operations(*gpu, chosen) == right);  // reuses the memory of a step's arrays
  }
}

TEST_CASE("what a device reports is thrown where the backend waits, and a backend that failed can be destroyed") {
  const std::vector<std::int32_t> chosen = {1};
  const auto gpu = emulated_backend({.failing_launch = 2});
  CHECK_THROWS_AS(three_operations(*gpu, chosen), gpu::DeviceError);
  CHECK_THROWS_AS(gpu->synchronize(), gpu::DeviceError);
  const auto full = emulated_backend({.memory = 4 << 20});
  CHECK_THROWS_WITH(full->allocate_kv({.num_layers = 4, .num_blocks = 1000, .num_kv_heads = 4, .head_dim = 64}),
                    Catch::Contains("for the KV cache"));
}

}  // namespace quire::test
