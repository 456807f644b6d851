#include "core/model/tools/memory_plan.h"

#include <catch2/catch.hpp>

#include "core/base/result.h"
#include "kernels/registry.h"
#include "tests/support/material.h"
#include "tests/support/temporary_folder.h"

using Catch::Contains;
using namespace quire;

namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

MemoryNeeds needs() {
  return {.weight_bytes = kGiB, .activation_bytes = 64 * kMiB, .kv_block_bytes = kMiB, .useful_kv_tokens = 16 * 1000};
}

MachineMemory machine(std::uint64_t available) {
  return {.available = available, .limited_by = "the machine"};
}

}  // namespace

TEST_CASE("The KV pool is what the options say", "[memory]") {
  KvCacheOptions options;
  options.num_blocks = 300;
  MemoryPlan plan = plan_memory(needs(), options, machine(8 * kGiB));
  CHECK(plan.num_blocks == 300);
  CHECK(plan.kv_bytes() == 300 * kMiB);
  CHECK(plan.kv_tokens() == 4800);
  CHECK(plan.num_requests_of(2048) == 2);
  CHECK(plan.total_bytes() == kGiB + 364 * kMiB + kProcessBytes);
  options.num_blocks = 0;
  options.memory = static_cast<std::int64_t>(100 * kMiB + kMiB / 2);
  CHECK(plan_memory(needs(), options, machine(8 * kGiB)).num_blocks == 100);
}

TEST_CASE("Memory of adapters is counted before the KV pool, and named", "[memory]") {
  MemoryNeeds with = needs();
  with.adapter_bytes = 512 * kMiB;
  const MemoryPlan plan = plan_memory(with, {}, machine(2 * kGiB));
  CHECK(plan.kv_bytes() < plan_memory(needs(), {}, machine(2 * kGiB)).kv_bytes());
  CHECK(plan.total_bytes() == kGiB + (512 + 64) * kMiB + kProcessBytes + plan.kv_bytes());
  CHECK_THAT(plan.describe(), Contains("adapters up to 512.0 MiB"));
  CHECK_THAT(plan_memory(needs(), {}, machine(2 * kGiB)).describe(), !Contains("adapters"));
  CHECK_THROWS_WITH(plan_memory(with, {}, machine(kGiB + 700 * kMiB)), Contains("model.adapter_memory 512.0 MiB"));
}

TEST_CASE("A model on a GPU needs memory of the host too, and is refused where that lacks", "[memory]") {
  MemoryNeeds on_gpu = needs();
  on_gpu.beside_bytes = 100 * kMiB;
  on_gpu.host_bytes = 300 * kMiB;
  const MachineMemory gpu{.available = 2 * kGiB, .limited_by = "GPU 0"};
  const MemoryPlan plan = plan_memory(on_gpu, {}, gpu, machine(kGiB));
  CHECK(plan.total_bytes() == kGiB + 164 * kMiB + plan.kv_bytes());
  CHECK_THAT(plan.describe(), Contains("steps 100.0 MiB") && Contains("that GPU 0 has left") &&
                                  Contains("beside it 300.0 MiB on the host of 1.0 GiB that the machine has left"));
  CHECK_THAT(plan_memory(on_gpu, {}, gpu).describe(), Contains("beside it 300.0 MiB on the host"));
  CHECK_THROWS_WITH(plan_memory(on_gpu, {}, gpu, machine(299 * kMiB)),
                    "the model does not fit: beside the GPU it needs 300.0 MiB of the host's memory, and the machine "
                    "has 299.0 MiB left");
  CHECK_THROWS_WITH(plan_memory(on_gpu, {}, machine(kGiB), machine(kGiB)), Contains("steps 100.0 MiB"));
}

TEST_CASE("By default the pool holds what can be used, and at most its share of what is left", "[memory]") {
  CHECK(plan_memory(needs(), {}, machine(8 * kGiB)).num_blocks == 1000);
  const MemoryPlan small = plan_memory(needs(), {}, machine(2 * kGiB));
  const std::uint64_t left = 2 * kGiB - kGiB - 64 * kMiB - kProcessBytes;
  CHECK(small.kv_bytes() <= left * 2 / 5);
  CHECK(small.kv_bytes() > left * 2 / 5 - 2 * kMiB);
}

TEST_CASE("K and V of a step alone take what a step can use, whatever is asked for", "[memory]") {
  MemoryNeeds encoder = needs();
  encoder.keeps_kv = false;
  KvCacheOptions options;
  options.memory = static_cast<std::int64_t>(4 * kGiB);
  CHECK(plan_memory(encoder, options, machine(8 * kGiB)).num_blocks == 1000);
}

TEST_CASE("A plan that does not fit is refused with figures and a remedy", "[memory]") {
  KvCacheOptions options;
  CHECK_THROWS_WITH(
      plan_memory(needs(), options, {.available = kGiB, .limited_by = "the cgroup /quire"}),
      Contains("does not fit") && Contains("weights 1.0 GiB") && Contains("the cgroup /quire has 1.0 GiB"));
  options.num_blocks = 4000;
  CHECK_THROWS_WITH(plan_memory(needs(), options, machine(4 * kGiB)),
                    Contains("4000 blocks of 1.0 MiB") && Contains("at most 2816"));
  options.num_blocks = 0;
  options.memory = static_cast<std::int64_t>(kMiB - 1);
  CHECK_THROWS_WITH(plan_memory(needs(), options, machine(4 * kGiB)), Contains("no block"));
  options.num_blocks = 1;
  CHECK_THROWS_WITH(plan_memory(needs(), options, machine(4 * kGiB)), Contains("both given"));
  options = {};
  options.block_size = 24;
  CHECK_THROWS_WITH(plan_memory(needs(), options, machine(4 * kGiB)), Contains("multiple of 16"));
  options = {};
  options.num_blocks = std::int64_t{1} << 40;
  CHECK_THROWS_AS(plan_memory(needs(), options, machine(4 * kGiB)), StartupError);
}

TEST_CASE("The plan's text names every figure that an operator asks for", "[memory]") {
  KvCacheOptions options;
  options.num_blocks = 300;
  const std::string text = plan_memory(needs(), options, machine(8 * kGiB)).describe();
  CHECK_THAT(text, Contains("weights 1.0 GiB") && Contains("KV pool 300.0 MiB: 300 blocks of 16 tokens, 4800 tokens"));
  CHECK_THAT(text, Contains("room for 2 requests of 2048 tokens") && Contains("of 8.0 GiB that the machine has left"));
}

TEST_CASE("Memory is limited by the machine or by the tightest enclosing cgroup", "[memory]") {
  const quire::test::TemporaryFolder root;  // holds the files of /proc and /sys/fs/cgroup that matter
  root.write("proc/meminfo", "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    8000 kB\n");
  CHECK(machine_memory(root.path()).available == 8000 * 1024);
  CHECK(machine_memory(root.path()).limited_by == "the machine");

  root.write("proc/self/cgroup", "0::/outer/inner\n");
  root.write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  root.write("sys/fs/cgroup/outer/memory.max", "6000000\n");
  root.write("sys/fs/cgroup/outer/memory.current", "4000000\n");
  root.write("sys/fs/cgroup/outer/memory.stat",
             "anon 2500000\nfile 1500000\ninactive_file 900000\nactive_file 600000\n");
  MachineMemory memory = machine_memory(root.path());
  CHECK(memory.available == 3500000);
  CHECK(memory.limited_by == "the cgroup /outer");

  root.write("sys/fs/cgroup/outer/inner/memory.high", "1000000\n");
  memory = machine_memory(root.path());
  CHECK(memory.available == 1000000);
  CHECK(memory.limited_by == "the cgroup /outer/inner");

  root.write("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "900000\n");  // v1, beside v2
  root.write("sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "500000\n");
  root.write("sys/fs/cgroup/memory/jobs/memory.stat", "inactive_file 7\ntotal_inactive_file 100000\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("proc/self/cgroup", "4:memory:/jobs/one\n0::/outer/inner\n");
  memory = machine_memory(root.path());
  CHECK(memory.available == 500000);
  CHECK(memory.limited_by == "the cgroup /jobs");
  root.write("proc/self/cgroup", "0::/outer/inner\n");

  root.write("sys/fs/cgroup/outer/inner/memory.current", "9000000\n");
  CHECK(machine_memory(root.path()).available == 0);
  root.write("proc/meminfo", "MemTotal: 5 kB\n");
  CHECK_THROWS_WITH(machine_memory(root.path()), Contains("MemAvailable"));
}

TEST_CASE("A model's needs are those of its weights, steps and blocks", "[memory]") {
  QUIRE_REQUIRE_MATERIAL(path, "weights/stories260K-gguf/stories260K.gguf");
  const auto model = open_model(path);
  const auto backend = create_backend({.device = "cpu", .cpu = {.isa = "scalar", .threads = 1, .pin = false}});
  const MemoryNeeds measured = memory_needs(*model, *backend, {}, {.max_num_seqs = 4});
  CHECK(measured.weight_bytes >= 260000 * 4);
  CHECK(measured.weight_bytes < 2000000);
  CHECK(measured.useful_kv_tokens == 4 * 2048);
  // 5 layers of K and V, 16 tokens, 4 heads of 8 in two bytes each; the backend may pad.
  CHECK(measured.kv_block_bytes >= 5 * 2 * 16 * 4 * 8 * 2);
  CHECK(memory_needs(*model, *backend, {}, {.max_num_seqs = 4, .max_model_len = 100}).useful_kv_tokens == 400);
}

TEST_CASE("Recurrent states take their share before the KV pool, one at least", "[memory]") {
  MemoryNeeds hybrid = needs();
  hybrid.state_bytes = 48 * kMiB;
  hybrid.useful_states = 12;
  const MemoryPlan plan = plan_memory(hybrid, {}, machine(8 * kGiB));
  CHECK(plan.num_states == 12);
  CHECK(plan.total_bytes() == kGiB + 64 * kMiB + kProcessBytes + plan.kv_bytes() + 12 * 48 * kMiB);
  CHECK_THAT(plan.describe(), Contains("recurrent states 576.0 MiB: 12 of 48.0 MiB"));
  const MemoryPlan small = plan_memory(hybrid, {}, machine(3 * kGiB));
  CHECK(small.num_states == 7);  // 20 % of the 1.76 GiB that the rest leaves
  CHECK(small.total_bytes() <= 3 * kGiB);
  CHECK(plan_memory(hybrid, {}, machine(kGiB + 400 * kMiB)).num_states == 1);
  CHECK_THROWS_AS(plan_memory(hybrid, {}, machine(kGiB + 290 * kMiB)), MemoryShortage);
  CHECK(plan_memory(needs(), {}, machine(8 * kGiB)).num_states == 0);
}

namespace {

// The shape of gemma3-4b: 34 layers with four heads of 256 in two bytes, of which 29 see 1024 tokens.
MemoryNeeds gemma3_shape(bool splits) {
  constexpr std::uint64_t kLayerBytes = 2 * 16 * 4 * 256 * 2;
  MemoryNeeds shape = needs();
  shape.kv_block_bytes = 34 * kLayerBytes;
  shape.useful_kv_tokens = 64 * 131'072;
  shape.limits = {.max_num_seqs = 64, .max_num_batched_tokens = 2048, .max_model_len = 131'072};
  if (!splits) return shape;
  shape.window_part_bytes = 29 * kLayerBytes;
  shape.window_tokens = 1024;
  return shape;
}

}  // namespace

TEST_CASE("Layers with a window leave room for more and longer sequences", "[memory]") {
  KvCacheOptions options;
  options.memory = static_cast<std::int64_t>(4 * kGiB);
  const MemoryPlan whole = plan_memory(gemma3_shape(false), options, machine(8 * kGiB));
  const MemoryPlan split = plan_memory(gemma3_shape(true), options, machine(8 * kGiB));
  CHECK(split.kv_bytes() <= 4 * kGiB);
  CHECK(split.kv_bytes() > 4 * kGiB - 4 * kMiB);
  CHECK(whole.num_requests_of(8192) == 3);
  CHECK(split.num_requests_of(8192) >= 2 * whole.num_requests_of(8192));
  CHECK(split.num_requests_of(32'768) > 0);
  CHECK(whole.num_requests_of(32'768) == 0);
  CHECK_THAT(split.describe(), Contains("layers keep which see 1024 tokens"));
  CHECK(whole.num_window_parts == 0);

  SECTION("a number of blocks is what was asked for, in less memory") {
    options = {};
    options.num_blocks = 2048;
    const MemoryPlan given = plan_memory(gemma3_shape(true), options, machine(8 * kGiB));
    CHECK(given.num_blocks == 2048);
    CHECK(given.kv_bytes() < 2048 * gemma3_shape(true).kv_block_bytes / 2);
  }
  SECTION("a pool that is hardly larger than a step's windows stays whole") {
    options.memory = static_cast<std::int64_t>(400 * kMiB);
    const MemoryPlan small = plan_memory(gemma3_shape(true), options, machine(8 * kGiB));
    CHECK(small.num_window_parts == 0);
    CHECK(small.kv_bytes() <= 400 * kMiB);
  }
  SECTION("where all layers see a window, blocks take nothing") {
    MemoryNeeds all = gemma3_shape(true);
    all.window_part_bytes = all.kv_block_bytes;
    const MemoryPlan plan = plan_memory(all, options, machine(8 * kGiB));
    CHECK(plan.kv_bytes() <= 4 * kGiB);
    CHECK(plan.num_blocks > 16 * plan.num_window_parts);
    CHECK(plan.num_requests_of(131'072) >= 20);
  }
  SECTION("without an order the pool takes its share") {
    const MemoryPlan plan = plan_memory(gemma3_shape(true), {}, machine(8 * kGiB));
    const std::uint64_t left = 7 * kGiB - 64 * kMiB - kProcessBytes;
    CHECK(plan.kv_bytes() <= left * 2 / 5);
    CHECK(plan.kv_bytes() > left * 2 / 5 - 4 * kMiB);
  }
}

TEST_CASE("Where a window is no shorter than the context layers keep all tokens", "[memory]") {
  QUIRE_REQUIRE_MATERIAL(path, "architectures/given/gemma3/model.gguf");
  const auto model = open_model(path);
  const auto backend = create_backend({.device = "cpu", .cpu = {.isa = "scalar", .threads = 1, .pin = false}});
  const MemoryNeeds measured = memory_needs(*model, *backend, {}, {.max_num_seqs = 4});
  CHECK(measured.window_tokens == 16);
  CHECK(measured.window_part_bytes > 0);
  CHECK(measured.window_part_bytes < measured.kv_block_bytes);
  KvCacheOptions with_tier;
  with_tier.host_tier_bytes = 1 << 20;
  CHECK(memory_needs(*model, *backend, with_tier, {.max_num_seqs = 4}).window_tokens == 16);
  const MemoryNeeds brief = memory_needs(*model, *backend, {}, {.max_num_seqs = 4, .max_model_len = 16});
  CHECK(brief.window_tokens == 0);
  CHECK(brief.kv_block_bytes == measured.kv_block_bytes);
}

TEST_CASE("A cache of int4 takes less than two fifths of f16's bytes, and no latent attention", "[memory]") {
  const auto backend = create_backend({.device = "cpu", .cpu = {.isa = "scalar", .threads = 1, .pin = false}});
  const auto needs_of = [&](const std::filesystem::path& path, KvDType dtype) {
    KvCacheOptions options;
    options.dtype = dtype;
    return memory_needs(*open_model(path), *backend, options, {.max_num_seqs = 4});
  };
  const auto demo = test::source_folder() / "deploy/demo-model/quire-demo.gguf";
  // Heads of 64: codes of 4 bits, 16 bits of scale and 16 of minimum for each 16 features of K and 32 of V.
  constexpr std::uint64_t kBlockOfLayer = 16 * 2 * ((32 + 4 * 4) + (32 + 2 * 4));
  CHECK(needs_of(demo, KvDType::kI4).kv_block_bytes == 4 * kBlockOfLayer);
  CHECK(5 * needs_of(demo, KvDType::kI4).kv_block_bytes < 2 * needs_of(demo, KvDType::kF16).kv_block_bytes);
  QUIRE_REQUIRE_MATERIAL(latent, "architectures/given/deepseek2/model.gguf");
  CHECK_NOTHROW(needs_of(latent, KvDType::kI8));
  CHECK_THROWS_WITH(needs_of(latent, KvDType::kI4),
                    "a KV cache of the type i4 does not keep latent attention: set kv_cache.dtype to i8");
}
