// Paged attention on every level: against double precision, and bit for bit the same however the work is cut.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "tests/kernels/attention_scene.h"
#include "tests/kernels/level_backends.h"

namespace quire::test {
namespace {

constexpr KvDType kKvTypes[] = {KvDType::kF32, KvDType::kF16, KvDType::kBF16, KvDType::kI8};

const char* name_of(KvDType dtype) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "int8"};
  return kNames[static_cast<std::size_t>(dtype)];
}

// Tiles of the AMX level take queries, probabilities, K and V to 16 bits; other levels compute in f32.
double attention_tolerance(const std::string& level) {
  return level.starts_with("amx") ? 1e-4 : 2e-5;
}

void check_scene(Backend& backend, AttentionScene& scene, double tolerance) {
  const auto kv = scene.make_cache(backend);
  const std::vector<Chunk> chunks = scene.everything();
  Matrix out(scene.num_rows(chunks), scene.width());
  scene.run(backend, *kv, chunks, out.view());
  CHECK(out.padding_untouched());
  double worst = 0.0;
  std::int64_t row = 0;
  for (const Chunk& chunk : chunks) {
    for (std::int64_t at = 0; at < chunk.end; ++at, ++row) {
      // Every early and late position, and a sample between: the reference is slow.
      if (at > 40 && at < chunk.end - 3 && at % 61 != 0) continue;
      const std::vector<double> expected = scene.expected(chunk.sequence, at);
      for (std::int64_t col = 0; col < scene.width(); ++col) {
        const double error = std::fabs(static_cast<double>(out.at(row, col)) - expected[static_cast<std::size_t>(col)]);
        worst = std::isnan(error) ? 1e9 : std::max(worst, error);
      }
    }
  }
  CHECK(worst < tolerance);
}

// Rows of all sequences, in order, computed by calls with the given chunks each.
Matrix run_in_calls(AttentionScene& scene, Backend& backend, const std::vector<std::vector<Chunk>>& calls) {
  const std::vector<Chunk> all = scene.everything();
  Matrix out(scene.num_rows(all), scene.width());
  const auto kv = scene.make_cache(backend);
  for (const std::vector<Chunk>& call : calls) {
    Matrix part(scene.num_rows(call), scene.width());
    scene.run(backend, *kv, call, part.view());
    std::int64_t from = 0;
    for (const Chunk& chunk : call) {
      std::int64_t first = 0;
      for (std::size_t s = 0; s < chunk.sequence; ++s)
        first += all[s].end;
      for (std::int64_t at = chunk.begin; at < chunk.end; ++at, ++from) {
        std::copy_n(&part.at(from, 0), scene.width(), &out.at(first + at, 0));
      }
    }
  }
  return out;
}

bool equal_bits(const Matrix& a, const Matrix& b) {
  return std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("attention agrees with double precision for every cache type and head shape") {
  const Heads shapes[] = {{8, 4, 8},   {3, 1, 24},  {4, 4, 16}, {6, 2, 32}, {14, 2, 64}, {4, 1, 80}, {2, 2, 96},
                          {4, 2, 128}, {2, 1, 256}, {9, 1, 16}, {16, 1, 8}, {40, 1, 16}, {64, 8, 16}};
  for (LevelBackend& level : level_backends(2)) {
    for (const KvDType dtype : kKvTypes) {
      for (const Heads heads : shapes) {
        INFO(level.level << " " << name_of(dtype) << " heads " << heads.num_heads << "/" << heads.num_kv_heads << " of "
                         << heads.head_dim);
        AttentionScene scene(3, heads, dtype, {1, 15, 33, 70});
        check_scene(*level.backend, scene, attention_tolerance(level.level));
      }
    }
  }
}

TEST_CASE("attention agrees with double precision across partitions and block sizes") {
  for (LevelBackend& level : level_backends(2)) {
    for (const std::int64_t block_size : {16, 32, 48, 128, 256}) {
      INFO(level.level << " block size " << block_size);
      AttentionScene scene(4, {4, 2, 16}, KvDType::kF16, {255, 256, 257, 600}, block_size);
      check_scene(*level.backend, scene, attention_tolerance(level.level));
    }
  }
}

TEST_CASE("in both directions a row sees all of its sequence, to the same bits whatever comes beside it") {
  for (LevelBackend& level : level_backends(2)) {
    for (const KvDType dtype : kKvTypes) {
      INFO(level.level << " " << name_of(dtype));
      AttentionScene scene(7, {6, 2, 32}, dtype, {300, 5, 128});
      scene.causal = false;
      check_scene(*level.backend, scene, attention_tolerance(level.level));
      const std::vector<Chunk> all = scene.everything();
      const Matrix together = run_in_calls(scene, *level.backend, {all});
      CHECK(equal_bits(together, run_in_calls(scene, *level.backend, {{all[0]}, {all[1]}, {all[2]}})));
      CHECK(equal_bits(together, run_in_calls(scene, *level.backend, {{all[2], all[0]}, {all[1]}})));
    }
  }
}

TEST_CASE("attention gives the same bits however the rows come") {
  for (const KvDType dtype : kKvTypes) {
    AttentionScene scene(5, {6, 2, 32}, dtype, {530, 5, 260});
    std::vector<std::vector<Chunk>> one_by_one;
    for (const Chunk& chunk : scene.everything()) {
      for (std::int64_t at = 0; at < chunk.end; ++at)
        one_by_one.push_back({{chunk.sequence, at, at + 1}});
    }
    const std::vector<std::vector<Chunk>> in_chunks = {{{0, 0, 17}, {1, 0, 2}},
                                                       {{1, 2, 3}, {0, 17, 300}},
                                                       {{2, 0, 259}, {0, 300, 301}, {1, 3, 5}},
                                                       {{0, 301, 530}, {2, 259, 260}}};
    for (LevelBackend& level : level_backends(1)) {
      INFO(level.level << " " << name_of(dtype));
      const Matrix whole = run_in_calls(scene, *level.backend, {scene.everything()});
      for (const int threads : {1, 2, 3}) {
        auto backends = level_backends(threads);
        Backend& same = *std::ranges::find(backends, level.level, &LevelBackend::level)->backend;
        CHECK(equal_bits(whole, run_in_calls(scene, same, {scene.everything()})));
        CHECK(equal_bits(whole, run_in_calls(scene, same, in_chunks)));
        if (dtype == KvDType::kF16) CHECK(equal_bits(whole, run_in_calls(scene, same, one_by_one)));
      }
    }
  }
}

TEST_CASE("blocks of K and V copy, read and write whole") {
  for (LevelBackend& level : level_backends(1)) {
    const KvLayout layout{.num_layers = 3, .num_blocks = 4, .block_size = 16, .num_kv_heads = 2, .head_dim = 8};
    const auto kv = level.backend->allocate_kv(layout);
    REQUIRE(kv->block_bytes() == level.backend->kv_block_bytes(layout));
    std::vector<std::byte> content(kv->block_bytes());
    for (std::size_t i = 0; i < content.size(); ++i)
      content[i] = static_cast<std::byte>(i * 7 % 251);
    kv->write_block(2, content);
    kv->copy_block(2, 0);
    std::vector<std::byte> back(kv->block_bytes());
    kv->read_block(0, back);
    CHECK(back == content);
    kv->read_block(1, back);
    CHECK(std::ranges::all_of(back, [](std::byte b) { return b == std::byte{0}; }));
  }
}

}  // namespace quire::test
