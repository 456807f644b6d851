// Attention in tiles on the emulated GPU: the same bits in every order of threads and for every grouping of rows; each
// barrier and wait in the kernel is needed, and its absence is detected. Its agreement with double precision is in
// tests/kernels/attention/attention_test.cpp and attention_masks_test.cpp.
#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/gpu_backend.h"
#include "tests/kernels/attention/attention_scene.h"

namespace quire::test {
namespace {

using gpu::EmulatedDeviceOptions;
using gpu::Mutation;

Matrix attended_in_tiles(AttentionScene& scene, const std::vector<Chunk>& chunks,
                         const EmulatedDeviceOptions& options = {}, std::size_t partial_bytes = kPartialBytes) {
  const auto backend = gpu::make_gpu_backend(std::make_unique<gpu::EmulatedDevice>(options),
                                             {.name = "cuda-emulated", .partial_bytes = partial_bytes});
  const auto kv = scene.make_cache(*backend);
  Matrix out(scene.num_rows(chunks), scene.width());
  scene.run(*backend, *kv, chunks, out.view());
  return out;
}

bool same_bits(const Matrix& a, const Matrix& b) {
  return std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0;
}

// Numbers of the operations of one kind that attention can leave out without an effect.
std::vector<int> attention_without(AttentionScene& scene, const std::vector<Chunk>& chunks, Mutation::Kind kind,
                                   int count) {
  const Matrix expected = attended_in_tiles(scene, chunks);
  std::vector<int> out;
  for (int number = 0; number < count; ++number) {
    bool found = false;
    for (std::uint64_t seed = 0; seed < 10 && !found; ++seed)
      found = !same_bits(attended_in_tiles(scene, chunks, {.seed = seed, .mutation = {kind, number}}), expected);
    if (!found) out.push_back(number);
  }
  return out;
}

}  // namespace

TEST_CASE("attention in tiles gives the same bits in every order of threads", "[.long]") {
  for (const KvDType dtype : {KvDType::kF16, KvDType::kBF16}) {
    for (const Heads heads : {Heads{6, 2, 40}, {40, 1, 16}, {4, 2, 136}}) {
      INFO("type " << static_cast<int>(dtype) << ", heads " << heads.num_heads << " of " << heads.head_dim);
      AttentionScene scene(5, heads, dtype, {2, 300});
      const std::vector<Chunk> chunks = {{0, 0, 1}, {0, 1, 2}, {1, 0, 260}, {1, 260, 300}};
      const Matrix expected = attended_in_tiles(scene, chunks);
      for (const std::uint64_t seed : {1U, 2U, 3U})
        CHECK(same_bits(attended_in_tiles(scene, chunks, {.seed = seed}), expected));
    }
  }
}

TEST_CASE("rows whose partitions' results do not fit together are computed one after the other, with the same bits",
          "[.long]") {
  constexpr Heads kHeads{6, 2, 40};
  constexpr std::size_t kOfPartition = 6 * (40 + 2) * sizeof(float);
  for (const KvDType dtype : {KvDType::kF32, KvDType::kF16, KvDType::kI8}) {
    AttentionScene scene(11, kHeads, dtype, {2, 270, 300});
    const std::vector<Chunk> chunks = {{0, 0, 2}, {1, 0, 240}, {2, 0, 260}, {1, 240, 270}, {2, 260, 300}};
    const Matrix expected = attended_in_tiles(scene, chunks);
    for (const std::size_t bytes : {std::size_t{1}, 7 * kOfPartition, 100 * kOfPartition}) {
      INFO("type " << static_cast<int>(dtype) << ", " << bytes << " bytes");
      CHECK(same_bits(attended_in_tiles(scene, chunks, {.seed = 4}, bytes), expected));
    }
  }
}

TEST_CASE("each barrier and wait of attention in tiles is found where it is left out") {
  // Three slices of keys and three of values: two barriers before the first sums, two for each slice but one.
  AttentionScene scene(9, {4, 1, 96}, KvDType::kF16, {250});
  for (const std::vector<Chunk>& chunks : {std::vector<Chunk>{{0, 0, 249}, {0, 249, 250}}}) {
    CHECK(attention_without(scene, chunks, Mutation::Kind::kSkipBlockBarrier, 7).empty());
    CHECK(attention_without(scene, chunks, Mutation::Kind::kSkipWarpBarrier, 6).empty());
    CHECK(attention_without(scene, chunks, Mutation::Kind::kSkipCopyWait, 6).empty());
  }
}

}  // namespace quire::test
