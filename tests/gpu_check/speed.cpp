#include "tests/gpu_check/speed.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/gpu/device/device_memory.h"
#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/kernels/row_ops.h"
#include "tests/kernels/random_data.h"

namespace quire::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 7;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The median seconds of one `each`, over rounds that enqueue `count` of them.
template <class Each, class Wait>
double seconds_of(int count, const Each& each, const Wait& wait) {
  std::vector<double> rounds;
  each(0);
  wait();
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = Clock::now();
    for (int i = 0; i < count; ++i)
      each(i);
    wait();
    rounds.push_back(seconds_since(begin) / count);
  }
  std::ranges::nth_element(rounds, rounds.begin() + kRounds / 2);
  return rounds[kRounds / 2];
}

// Bytes per second, read and written, of the copying kernel.
double copy_rate(gpu::Device& device) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  const gpu::DeviceMemory from(device, kBytes, "the copy's source");
  const gpu::DeviceMemory to(device, kBytes, "the copy's destination");
  device.fill(from.data(), std::byte{1}, kBytes, gpu::Stream::kCompute);
  const gpu::CopyBytesArgs args{from.data(), to.data(), static_cast<std::int64_t>(kBytes)};
  const gpu::Kernel& kernel = device.kernel("copy_bytes");
  const double seconds = seconds_of(
      4, [&](int) { device.launch(kernel, {.x = static_cast<std::int64_t>(kBytes / (256 * 16))}, args); },
      [&] { device.synchronize(); });
  return 2.0 * static_cast<double>(kBytes) / seconds;
}

// A product of an 8B model's shape. Uses several matrices in turn, which no cache holds together.
void measure_linear(Backend& backend, DType type, double rate) {
  constexpr std::int64_t kOutputs = 14336;
  constexpr std::int64_t kDepth = 4096;
  constexpr int kMatrices = 6;
  std::mt19937 random(1);
  const Weights weights = random_weights(random, type, kOutputs, kDepth);
  const WeightSource source = weights.source();
  std::vector<std::unique_ptr<Linear>> matrices;
  for (int i = 0; i < kMatrices; ++i)
    matrices.push_back(backend.load_linear({&source, 1}, {}));
  for (const std::int64_t rows : {1, 8, 32, 64, 128, 256, 2048}) {
    const auto x = backend.upload(random_floats(random, rows * kDepth));
    const auto out = backend.allocate(rows * kOutputs);
    const double seconds = seconds_of(
        rows > 64 ? 6 : 60,
        [&](int i) {
          backend.linear(*matrices[static_cast<std::size_t>(i % kMatrices)],
                         MatrixView{x->data(), rows, kDepth, kDepth}, {out->data(), rows, kOutputs, kOutputs}, false);
        },
        [&] { backend.synchronize(); });
    const double bytes = static_cast<double>(matrices[0]->bytes()) / seconds;
    const double operations = 2.0 * static_cast<double>(rows * kOutputs * kDepth) / seconds;
    std::printf("linear %-7s %5lld rows %9.1f us %7.0f GB/s (%3.0f %% of copying) %7.1f Tops\n",
                std::string(dtype_info(type).name).c_str(), static_cast<long long>(rows), 1e6 * seconds, bytes / 1e9,
                100.0 * bytes / rate, operations / 1e12);
  }
}

// A layer of 32 heads of 128, with 8 in the cache, at the end of contexts of `context` tokens.
void measure_attention(Backend& backend, KvDType type, std::int64_t num_seqs, std::int64_t context,
                       std::int64_t rows_each, double rate) {
  constexpr std::int64_t kBlock = 16;
  const std::int64_t blocks_each = context / kBlock;
  const KvLayout layout{.num_layers = 1,
                        .num_blocks = num_seqs * blocks_each,
                        .block_size = kBlock,
                        .num_kv_heads = 8,
                        .head_dim = 128,
                        .dtype = type};
  const auto kv = backend.allocate_kv(layout);
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(layout.num_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<std::int32_t> starts{0}, tables{0}, contexts, slots;
  for (std::int64_t s = 0; s < num_seqs; ++s) {
    starts.push_back(static_cast<std::int32_t>((s + 1) * rows_each));
    tables.push_back(static_cast<std::int32_t>((s + 1) * blocks_each));
    contexts.push_back(static_cast<std::int32_t>(context));
  }
  const std::int64_t rows = num_seqs * rows_each;
  slots.assign(static_cast<std::size_t>(rows), 0);
  const auto q = backend.allocate(rows * 4096);
  const auto out = backend.allocate(rows * 4096);
  const AttentionBatch batch{starts, contexts, tables, blocks, slots};
  const double seconds = seconds_of(
      4,
      [&](int) {
        backend.attention(*kv, 0, batch, {q->data(), rows, 4096, 4096}, 32, 0.09f, {out->data(), rows, 4096, 4096});
      },
      [&] { backend.synchronize(); });
  const double bytes = static_cast<double>(kv->block_bytes() * static_cast<std::size_t>(layout.num_blocks)) / seconds;
  std::printf(
      "attention %s %3lld sequences of %5lld, %4lld rows each %9.1f us %7.0f GB/s of K and V (%3.0f %% of copying)\n",
      type == KvDType::kI8 ? "int8" : "f16", static_cast<long long>(num_seqs), static_cast<long long>(context),
      static_cast<long long>(rows_each), 1e6 * seconds, bytes / 1e9, 100.0 * bytes / rate);
}

}  // namespace

void measure(std::unique_ptr<gpu::Device> device, std::string_view part) {
  const double rate = copy_rate(*device);
  std::printf("copy %7.0f GB/s read and written\n", rate / 1e9);
  const auto backend = gpu::make_gpu_backend(std::move(device), {.name = "cuda"});
  const auto is_asked = [&](const std::string& name) { return name.find(part) != std::string::npos; };
  for (const DType type : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0, DType::kMXFP4, DType::kF16, DType::kBF16}) {
    if (is_asked("linear " + std::string(dtype_info(type).name))) measure_linear(*backend, type, rate);
  }
  if (!is_asked("attention")) return;
  for (const KvDType type : {KvDType::kF16, KvDType::kI8}) {
    measure_attention(*backend, type, 1, 1024, 1, rate);
    measure_attention(*backend, type, 1, 16384, 1, rate);
    measure_attention(*backend, type, 64, 1024, 1, rate);
    measure_attention(*backend, type, 1, 2048, 512, rate);
    measure_attention(*backend, type, 1, 2048, 2048, rate);
  }
}

}  // namespace quire::test
