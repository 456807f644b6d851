// Attention with windows, chunks, caps, sinks, biases by distance, in both directions, with V of another size or inside
// K, on every level: against double precision, and bit for bit the same however the work is cut.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/kernels/attention/attention_scene.h"
#include "tests/kernels/levels/level_backends.h"

namespace quire::test {
namespace {

const float kSinks = 0.0f;  // any address: the scene makes random ones

struct MaskCase {
  const char* name;
  Heads heads;
  AttentionOptions options;
};

const MaskCase kCases[] = {
    {"window", {4, 2, 32}, {.window = 37}},
    {"window of whole blocks", {6, 2, 64}, {.window = 128}},
    {"window beyond a partition", {8, 4, 16}, {.window = 300}},
    {"chunk", {4, 4, 24}, {.chunk = 100}},
    {"softcap", {4, 2, 16}, {.softcap = 1.5f}},
    {"sinks", {8, 1, 64}, {.window = 33, .sinks = &kSinks}},
    {"sinks and cap", {3, 1, 24}, {.softcap = 2.0f, .sinks = &kSinks}},
    {"both directions", {12, 12, 32}, {.causal = false}},
    {"both directions, window", {4, 2, 64}, {.causal = false, .window = 50}},
    {"biases by distance", {8, 8, 16}, {.causal = false, .alibi = 8.0f}},
    {"smaller values", {4, 2, 32, 16}, {}},
    {"larger values", {4, 2, 24, 40}, {}},
    {"values in keys", {16, 1, 40, 32}, {.value_in_key = true}},
    {"values in keys, odd heads", {3, 1, 24, 24}, {.window = 200, .value_in_key = true}},
};

constexpr KvDType kTypes[] = {KvDType::kF32, KvDType::kF16, KvDType::kBF16, KvDType::kI8, KvDType::kI4};

// Checks every level, for the types that `asked` accepts for a mask of kCases.
template <class Asked>
void check_errors(const Asked& asked) {
  const std::vector<LevelBackend> levels = level_backends(2);
  for (const KvDType dtype : kTypes) {
    for (const MaskCase& test : kCases) {
      if (!asked(dtype, &test - kCases)) continue;
      if (dtype == KvDType::kI4 && test.options.value_in_key) continue;  // refused: memory_plan_test.cpp
      AttentionScene scene(6, test.heads, dtype, {1, 15, 70, 333}, 16, test.options);
      for (const LevelBackend& level : levels) {
        if (!keeps(*level.backend, dtype)) continue;
        INFO(level.level << ", " << test.name << ", type " << static_cast<int>(dtype));
        // The level amx computes attention of whole contexts in both directions on tiles.
        const bool on_tiles = level.level.starts_with("amx") && !test.options.causal && test.options.window == 0;
        const bool in_bf16 = level.level.starts_with("cuda") && dtype == KvDType::kBF16;
        const double tolerance = dtype == KvDType::kI4 ? 1e-3 : on_tiles ? 1e-4 : in_bf16 ? 5e-5 : 2e-5;
        CHECK(scene.worst_error(*level.backend) < tolerance);
      }
    }
  }
}

}  // namespace

TEST_CASE("masked attention agrees with double precision", "[kernels][attention]") {
  check_errors([](KvDType dtype, std::ptrdiff_t mask) {
    return dtype == kTypes[static_cast<std::size_t>(mask) % std::size(kTypes)];
  });
}

TEST_CASE("masked attention agrees with double precision for every cache type", "[kernels][attention][.long]") {
  check_errors([](KvDType, std::ptrdiff_t) { return true; });
}

TEST_CASE("masked attention agrees with double precision for large heads", "[kernels][attention][.long]") {
  const MaskCase cases[] = {{"256", {4, 2, 256}, {.window = 64}},
                            {"512", {2, 1, 512}, {.window = 600, .softcap = 3.0f}},
                            {"192 and 128", {2, 2, 192, 128}, {}},
                            {"576 and 512", {16, 1, 576, 512}, {.value_in_key = true}}};
  const std::vector<LevelBackend> levels = level_backends(2);
  for (const MaskCase& test : cases) {
    AttentionScene scene(7, test.heads, KvDType::kF16, {20, 270}, 32, test.options);
    for (const LevelBackend& level : levels) {
      INFO(level.level << ", " << test.name);
      CHECK(scene.worst_error(*level.backend) < 4e-5);
    }
  }
}

TEST_CASE("masked attention gives the same bits however the rows come", "[kernels][attention][.long]") {
  const std::vector<std::vector<Chunk>> in_chunks = {{{0, 0, 17}, {1, 0, 2}},
                                                     {{1, 2, 3}, {0, 17, 300}},
                                                     {{2, 0, 259}, {0, 300, 301}, {1, 3, 5}},
                                                     {{0, 301, 530}, {2, 259, 260}}};
  const std::vector<std::vector<Chunk>> apart = {{{2, 0, 260}}, {{0, 0, 530}}, {{1, 0, 5}}};
  const auto equal = [](const Matrix& a, const Matrix& b) {
    return std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0;
  };
  const auto ones = level_backends(1);
  const auto threes = level_backends(3);
  for (const MaskCase& test : kCases) {
    for (const KvDType dtype : {KvDType::kF16, KvDType::kI4}) {
      AttentionScene scene(8, test.heads, dtype, {530, 5, 260}, 16, test.options);
      for (std::size_t i = 0; i < ones.size(); ++i) {
        const LevelBackend& level = ones[i];
        if (!keeps(*level.backend, dtype) || (dtype == KvDType::kI4 && test.options.value_in_key)) continue;
        INFO(level.level << ", " << test.name << ", type " << static_cast<int>(dtype));
        const Matrix whole = scene.run_in_calls(*level.backend, {scene.everything()});
        CHECK(equal(whole, scene.run_in_calls(*level.backend, apart)));
        Backend& three = *threes[i].backend;
        CHECK(equal(whole, scene.run_in_calls(three, {scene.everything()})));
        // A sequence that attends in both directions is computed whole.
        if (test.options.causal) CHECK(equal(whole, scene.run_in_calls(three, in_chunks)));
      }
    }
  }
}

TEST_CASE("rows that see later ones agree with double precision, alone and beside others", "[kernels][attention]") {
  const MaskCase cases[] = {{"plain", {4, 2, 32}, {}},
                            {"window", {4, 2, 32}, {.window = 90}},
                            {"window within the span", {4, 4, 64}, {.window = 37}},
                            {"softcap", {8, 1, 64}, {.softcap = 2.0f}}};
  const std::vector<LevelBackend> levels = level_backends(2);
  for (const MaskCase& test : cases) {
    for (const KvDType dtype : {KvDType::kF32, KvDType::kF16, KvDType::kI8}) {
      AttentionScene scene(9, test.heads, dtype, {333, 70, 15}, 16, test.options);
      scene.see_each_other(21, 150);
      const std::vector<std::vector<Chunk>> parts = {
          {{0, 0, 21}, {2, 0, 15}}, {{1, 0, 70}, {0, 21, 150}}, {{0, 150, 200}}, {{0, 200, 333}}};
      for (const LevelBackend& level : levels) {
        if (!keeps(*level.backend, dtype)) continue;
        INFO(level.level << ", " << test.name << ", type " << static_cast<int>(dtype));
        CHECK(scene.worst_error(*level.backend) < 5e-5);
        const Matrix whole = scene.run_in_calls(*level.backend, {scene.everything()});
        const Matrix cut = scene.run_in_calls(*level.backend, parts);
        CHECK(std::memcmp(whole.data.data(), cut.data.data(), whole.data.size() * sizeof(float)) == 0);
      }
    }
  }
}

}  // namespace quire::test
