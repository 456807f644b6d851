// Attention in the machine code of the AMX level, over the processor's tiles or over trapped ones, against the same
// kernels over tiles emulated in C++: bit for bit, for prompts, for single rows and for several threads; and how many
// products it asks of the tiles.
#include <catch2/catch.hpp>

#include "tests/kernels/attention/attention_scene.h"
#include "tests/kernels/levels/amx_level.h"
#include "tests/support/amx_tables.h"

namespace quire::test {
namespace {

constexpr KvDType kTiledKvTypes[] = {KvDType::kF32, KvDType::kF16, KvDType::kBF16, KvDType::kI8};

Matrix attention_over(const KernelTable& kernels, int threads, AttentionScene& scene,
                      const std::vector<std::vector<Chunk>>& calls) {
  const auto backend = backend_over(kernels, threads);
  const auto kv = scene.make_cache(*backend);
  Matrix last(scene.num_rows(calls.back()), scene.width());
  for (const std::vector<Chunk>& call : calls) {
    Matrix out(scene.num_rows(call), scene.width());
    scene.run(*backend, *kv, call, out.view());
    CHECK(out.padding_untouched());
    last = std::move(out);
  }
  return last;
}

// Products of one call that computes rows [begin, end) of a sequence whose earlier rows are stored.
AmxCounts attention_counts(AmxTrap& trap, Heads heads, KvDType dtype, std::int64_t begin, std::int64_t end) {
  AttentionScene scene(9, heads, dtype, {end});
  const auto backend = backend_over(amx_kernels(), 1);
  const auto kv = scene.make_cache(*backend);
  if (begin > 0) {
    Matrix before(begin, scene.width());
    scene.run(*backend, *kv, {{0, 0, begin}}, before.view());
  }
  Matrix out(end - begin, scene.width());
  trap.take_counts();
  scene.run(*backend, *kv, {{0, begin, end}}, out.view());
  CHECK(trap.configured_threads() == 0);
  return trap.take_counts();
}

}  // namespace

TEST_CASE("attention in the AMX level's machine code gives the bits of its emulation", "[kernels][.long]") {
  REQUIRE_AMX_VECTORS();
  const AmxTiles tiles;
  const Heads shapes[] = {{14, 2, 64}, {4, 1, 80}, {2, 2, 96}, {4, 4, 128}, {8, 1, 256}, {9, 1, 16}};
  for (const KvDType dtype : kTiledKvTypes) {
    for (const Heads heads : shapes) {
      if (dtype != KvDType::kF16 && heads.head_dim % 64 != 0 && heads.head_dim != 80) continue;
      INFO("KV type " << static_cast<int>(dtype) << ", heads " << heads.num_heads << "/" << heads.num_kv_heads << " of "
                      << heads.head_dim);
      AttentionScene scene(6, heads, dtype, {270, 17});
      const std::vector<std::vector<Chunk>> whole = {scene.everything()};
      const std::vector<std::vector<Chunk>> last_alone = {{{0, 0, 269}, {1, 0, 3}}, {{0, 269, 270}, {1, 3, 17}}};
      for (const auto& calls : {whole, last_alone}) {
        const Matrix expected = attention_over(amx_emulated_avx512_kernels(), 1, scene, calls);
        for (const int threads : {1, 2}) {
          const Matrix out = attention_over(amx_kernels(), threads, scene, calls);
          CHECK(same_rows(out, 0, expected, 0, out.rows));
        }
      }
    }
  }
}

TEST_CASE("attention on the AMX level multiplies no tile of tokens that no query of the tile sees",
          "[kernels][.long]") {
  REQUIRE_AMX_VECTORS();
  REQUIRE_TRAPPED_TILES();
  AmxTrap trap;
  // Products of 16 query vectors with 16 tokens, for 64 dimensions: two with K, two with V; f16 K and V have a low and
  // a high part, as queries and weights do, and low times low is left out.
  const auto of_block = [](KvDType dtype) { return 4 * (dtype == KvDType::kF16 || dtype == KvDType::kF32 ? 3 : 2); };
  for (const KvDType dtype : kTiledKvTypes) {
    INFO("KV type " << static_cast<int>(dtype));
    // A single row: four vectors in half a pair of tiles.
    CHECK(attention_counts(trap, {4, 1, 64}, dtype, 511, 512).products == 512 / 16 * of_block(dtype));
    // A prompt: tiles of 32 vectors, eight rows each, see up to the end of the run of 32 tokens that their last row
    // sees.
    std::int64_t blocks = 0;
    for (std::int64_t row = 0; row < 512; row += 8)
      blocks += 2 * 2 * ((row + 8 + 31) / 32);
    CHECK(attention_counts(trap, {4, 1, 64}, dtype, 0, 512).products == blocks * of_block(dtype));
  }
  const AmxCounts prompt = attention_counts(trap, {4, 1, 64}, KvDType::kF16, 1024, 1536);
  CHECK(prompt.loads < prompt.products);
  CHECK(prompt.configures <= prompt.products / 512);
}

}  // namespace quire::test
