// Levels of the same arithmetic, bit for bit: avx512 on x86-64, and neon, dotprod and i8mm on arm64 equal the fused
// scalar level, whose code is the same on both.
#include "tests/kernels/levels/fused_level.h"

#include <catch2/catch.hpp>
#include <memory>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/attention/attention_scene.h"
#include "tests/kernels/random_data.h"

namespace quire::test {
namespace {

std::unique_ptr<Backend> over(const KernelTable& kernels) {
  return make_cpu_backend({.kernels = &kernels, .threads = 1, .pin = false});
}

// Calls check(the level's kernels, fused kernels) for each of them that this machine has.
template <class Check>
void each_equal_level(const Check& check) {
  int compared = 0;
  for (const CpuLevel& level : cpu_levels()) {
    const bool equal =
        level.name == "avx512" || level.name == "neon" || level.name == "dotprod" || level.name == "i8mm";
    if (!equal || !level.supported() || !can_run_fused()) continue;
    ++compared;
    INFO(std::string(level.name));
    check(*level.table(), kFusedKernels);
  }
  if (compared == 0) WARN("skipped: this processor has no level with the arithmetic of avx512");
}

Matrix product(Backend& backend, const Weights& weights, Matrix& x) {
  const WeightSource source = weights.source();
  Matrix out(x.rows, weights.rows, 0);
  backend.linear(*backend.load_linear({&source, 1}, {}), x.view(), out.view(), false);
  return out;
}

Matrix attended(Backend& backend, AttentionScene& scene, const std::vector<Chunk>& chunks) {
  const auto kv = scene.make_cache(backend);
  Matrix out(scene.num_rows(chunks), scene.width(), 0);
  scene.run(backend, *kv, chunks, out.view());
  return out;
}

}  // namespace

TEST_CASE("levels of one arithmetic: products of every type have the bits of the fused scalar level") {
  each_equal_level([](const KernelTable& level, const KernelTable& fused) {
    for (const DType type : kAllTypes) {
      for (const std::int64_t rows : {1, 2, 3, 8, 33}) {
        INFO(dtype_info(type).name << ", " << rows << " rows");
        std::mt19937 random(11);
        const Weights weights = random_weights(random, type, 50, 768);
        Matrix x = random_matrix(random, rows, 768);
        CHECK(product(*over(level), weights, x).data == product(*over(fused), weights, x).data);
      }
    }
  });
}

TEST_CASE("levels of one arithmetic: attention has the bits of the fused scalar level") {
  const std::vector<Chunk> chunks = {{0, 0, 1}, {0, 1, 2}, {1, 0, 300}, {1, 300, 515}};
  each_equal_level([&](const KernelTable& level, const KernelTable& fused) {
    for (const KvDType dtype : {KvDType::kF32, KvDType::kF16, KvDType::kBF16, KvDType::kI8, KvDType::kI4}) {
      for (const Heads heads : {Heads{6, 2, 32}, {3, 1, 24}, {4, 4, 128}}) {
        INFO("type " << static_cast<int>(dtype) << ", heads " << heads.num_heads << " of " << heads.head_dim);
        AttentionScene scene(5, heads, dtype, {2, 515});
        CHECK(attended(*over(level), scene, chunks).data == attended(*over(fused), scene, chunks).data);
      }
    }
  });
}

TEST_CASE("levels of one arithmetic: operations on rows have the bits of the fused scalar level") {
  each_equal_level([](const KernelTable& level, const KernelTable& fused) {
    std::mt19937 random(12);
    for (const std::int64_t width : {16, 78, 256}) {
      INFO(width << " wide");
      const std::vector<float> x = random_floats(random, width, 20.0f);
      const std::vector<float> y = random_floats(random, width, 20.0f);
      const auto both = [&](const auto& run) {
        std::vector<float> out[2] = {x, x};
        run(level, out[0].data());
        run(fused, out[1].data());
        CHECK(out[0] == out[1]);
      };
      const std::int64_t half = width / 2;
      both([&](const KernelTable& k, float* out) { k.rms_norm(x.data(), y.data(), 1e-5f, width, out); });
      both([&](const KernelTable& k, float* out) { k.layer_norm(x.data(), y.data(), x.data(), 1e-5f, width, out); });
      both([&](const KernelTable& k, float* out) { k.swiglu(x.data(), y.data(), width, out); });
      both([&](const KernelTable& k, float* out) { k.softcap(x.data(), 30.0f, width, out); });
      both([&](const KernelTable& k, float* out) { k.add_scaled(y.data(), 0.3f, width, out); });
      both([&](const KernelTable& k, float* out) { k.rope_half(out, y.data(), y.data() + half, half); });
      both([&](const KernelTable& k, float* out) { k.rope_interleaved(out, y.data(), y.data() + half, half); });
      for (const Nonlinearity kind : {Nonlinearity::kGelu, Nonlinearity::kSilu, Nonlinearity::kReluSquared}) {
        both([&](const KernelTable& k, float* out) { k.activate({.kind = kind}, x.data(), y.data(), width, out); });
      }
    }
  });
}

}  // namespace quire::test
