// Paged attention on every level: against double precision, and bit for bit the same however the work is cut.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "tests/kernels/attention/attention_scene.h"
#include "tests/kernels/levels/level_backends.h"

namespace quire::test {
namespace {

constexpr KvDType kKvTypes[] = {KvDType::kF32, KvDType::kF16, KvDType::kBF16, KvDType::kI8, KvDType::kI4};

const char* name_of(KvDType dtype) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "int8", "int4"};
  return kNames[static_cast<std::size_t>(dtype)];
}

// The tiles of the level amx round queries, probabilities, K and V to 16 bits; GPUs round queries and
// probabilities, to 16 bits if the cache is bf16 (to 22 if it is f16); other levels compute in f32. Over int4 a weight
// of V between two steps of 15 bits may be rounded to either.
double attention_tolerance(const std::string& level, KvDType dtype) {
  if (dtype == KvDType::kI4) return 1e-3;
  if (level.starts_with("cuda") && dtype == KvDType::kBF16) return 5e-5;
  return level.starts_with("amx") ? 1e-4 : 2e-5;
}

bool equal_bits(const Matrix& a, const Matrix& b) {
  return std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("attention agrees with double precision for every cache type and head shape") {
  const Heads shapes[] = {{8, 4, 8},   {3, 1, 24},  {4, 4, 16}, {6, 2, 32}, {14, 2, 64}, {4, 1, 80}, {2, 2, 96},
                          {4, 2, 128}, {2, 1, 256}, {9, 1, 16}, {16, 1, 8}, {40, 1, 16}, {64, 8, 16}};
  const std::vector<LevelBackend> levels = level_backends(2);
  for (const KvDType dtype : kKvTypes) {
    for (const Heads heads : shapes) {
      AttentionScene scene(3, heads, dtype, {1, 15, 33, 70});
      for (const LevelBackend& level : levels) {
        if (!keeps(*level.backend, dtype)) continue;
        INFO(level.level << " " << name_of(dtype) << " heads " << heads.num_heads << "/" << heads.num_kv_heads << " of "
                         << heads.head_dim);
        CHECK(scene.worst_error(*level.backend) < attention_tolerance(level.level, dtype));
      }
    }
  }
}

TEST_CASE("attention agrees with double precision across partitions and block sizes") {
  const std::vector<LevelBackend> levels = level_backends(2);
  for (const std::int64_t block_size : {16, 32, 48, 128, 256}) {
    AttentionScene scene(4, {4, 2, 16}, KvDType::kF16, {255, 256, 257, 600}, block_size);
    for (const LevelBackend& level : levels) {
      INFO(level.level << " block size " << block_size);
      CHECK(scene.worst_error(*level.backend) < attention_tolerance(level.level, KvDType::kF16));
    }
  }
}

namespace {

void check_chunks(std::initializer_list<KvDType> types) {
  const auto ones = level_backends(1);
  const auto threes = level_backends(3);
  for (const KvDType dtype : types) {
    AttentionScene scene(5, {6, 2, 32}, dtype, {530, 5, 260});
    const std::vector<std::vector<Chunk>> in_chunks = {{{0, 0, 17}, {1, 0, 2}},
                                                       {{1, 2, 3}, {0, 17, 300}},
                                                       {{2, 0, 259}, {0, 300, 301}, {1, 3, 5}},
                                                       {{0, 301, 530}, {2, 259, 260}}};
    for (std::size_t i = 0; i < ones.size(); ++i) {
      const LevelBackend& level = ones[i];
      if (!keeps(*level.backend, dtype)) continue;
      INFO(level.level << " " << name_of(dtype));
      const Matrix whole = scene.run_in_calls(*level.backend, {scene.everything()});
      Backend& three = *threes[i].backend;
      CHECK(equal_bits(whole, scene.run_in_calls(three, {scene.everything()})));
      CHECK(equal_bits(whole, scene.run_in_calls(three, in_chunks)));
      CHECK(equal_bits(whole, scene.run_in_calls(*level.backend, in_chunks)));
    }
  }
}

}  // namespace

TEST_CASE("attention gives the same bits however the rows come") {
  check_chunks({KvDType::kF16, KvDType::kI8, KvDType::kI4});
}

TEST_CASE("attention gives the same bits however the rows come, with caches of f32 and bf16", "[.long]") {
  check_chunks({KvDType::kF32, KvDType::kBF16});
}

TEST_CASE("attention gives the same bits row by row", "[.long]") {
  AttentionScene scene(5, {6, 2, 32}, KvDType::kF16, {530, 5, 260});
  std::vector<std::vector<Chunk>> one_by_one;
  for (const Chunk& chunk : scene.everything()) {
    for (std::int64_t at = 0; at < chunk.end; ++at)
      one_by_one.push_back({{chunk.sequence, at, at + 1}});
  }
  const auto ones = level_backends(1);
  const auto threes = level_backends(3);
  for (std::size_t i = 0; i < ones.size(); ++i) {
    INFO(ones[i].level);
    const Matrix whole = scene.run_in_calls(*ones[i].backend, {scene.everything()});
    CHECK(equal_bits(whole, scene.run_in_calls(*threes[i].backend, one_by_one)));
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
