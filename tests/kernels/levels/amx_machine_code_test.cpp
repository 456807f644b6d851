// The machine code of the AMX level, over the processor's tiles or over trapped ones, against the same kernels over
// tiles emulated in C++: bit for bit, for any number of rows; the number of its tile instructions, and the faults that
// the trap refuses.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "kernels/formats/half.h"
#include "tests/kernels/levels/amx_level.h"
#include "tests/kernels/random_data.h"
#include "tests/support/amx_tables.h"

namespace quire::test {
namespace {

struct AmxShape {
  std::int64_t outputs;
  std::int64_t depth;
};

// Odd numbers of panels, a last one with only part of its columns, depths that are no multiples of any block.
std::vector<AmxShape> amx_shapes(DType type) {
  const std::int64_t block = dtype_info(type).block_size;
  if (block == 1) return {{37, 173}, {80, 1064}};
  if (block == 32) return {{37, 160}, {80, 1120}};
  return {{37, 256}, {80, 1280}};
}

void check_machine_code(DType type, AmxShape shape, const std::vector<std::int64_t>& row_counts) {
  std::mt19937 random(17);
  const Weights weights = random_weights(random, type, shape.outputs, shape.depth);
  const WeightSource source = weights.source();
  const std::vector<float> bias = random_floats(random, shape.outputs);
  const auto machine = backend_over(amx_kernels(), 2);
  const auto emulated = backend_over(amx_emulated_avx512_kernels(), 1);
  const auto on_machine = machine->load_linear({&source, 1}, bias);
  const auto on_emulated = emulated->load_linear({&source, 1}, bias);
  const std::int64_t most = row_counts.back();
  Matrix x = random_matrix(random, most, shape.depth);
  Matrix expected(most, shape.outputs);
  emulated->linear(*on_emulated, x.view(), expected.view(), false);
  for (const std::int64_t rows : row_counts) {
    INFO(rows << " rows, " << shape.outputs << " x " << shape.depth);
    const std::int64_t first = most - rows;
    Matrix out(rows, shape.outputs);
    machine->linear(*on_machine, x.rows_from(first, rows), out.view(), false);
    CHECK(out.padding_untouched());
    CHECK(same_rows(out, 0, expected, first, rows));
    Matrix twice = out;
    Matrix expected_twice = out;
    machine->linear(*on_machine, x.rows_from(first, rows), twice.view(), true);
    emulated->linear(*on_emulated, x.rows_from(first, rows), expected_twice.view(), true);
    CHECK(same_rows(twice, 0, expected_twice, 0, rows));
  }
}

// Counts the tile instructions of a product.
AmxCounts counts_of(AmxTrap& trap, DType type, std::int64_t rows, std::int64_t outputs, std::int64_t depth) {
  std::mt19937 random(3);
  const Weights weights = random_weights(random, type, outputs, depth);
  const WeightSource source = weights.source();
  const auto backend = backend_over(amx_kernels(), 1);
  const auto linear = backend->load_linear({&source, 1}, {});
  Matrix x = random_matrix(random, rows, depth);
  Matrix out(rows, outputs);
  trap.take_counts();
  backend->linear(*linear, x.view(), out.view(), false);
  return trap.take_counts();
}

// Runs `code` with trapped tiles in a child; returns its end and its message.
std::pair<int, std::string> signal_and_message(void (*code)()) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    signal(SIGILL, SIG_DFL);
    const AmxTrap trap;
    code();
    _exit(0);
  }
  close(ends[1]);
  std::string message;
  char buffer[256];
  for (ssize_t got = read(ends[0], buffer, sizeof buffer); got > 0; got = read(ends[0], buffer, sizeof buffer))
    message.append(buffer, static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return {WIFSIGNALED(status) ? WTERMSIG(status) : 0, message};
}

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

void configure(const TileConfig& config) {
  asm volatile("ldtilecfg %0" : : "m"(config));
}

TileConfig three_tiles(std::uint8_t rows, std::uint16_t row_bytes) {
  TileConfig config;
  for (int tile = 0; tile < 3; ++tile) {
    config.rows[tile] = rows;
    config.row_bytes[tile] = row_bytes;
  }
  return config;
}

void load_tiles(const void* a, const void* b) {
  asm volatile(
      "tilezero %%tmm0\n"
      "tileloadd (%0,%2,1), %%tmm1\n"
      "tileloaddt1 (%1,%2,1), %%tmm2\n"
      :
      : "r"(a), "r"(b), "r"(std::intptr_t{8})
      : "memory");
}

void store_tile(void* to) {
  asm volatile("tilestored %%tmm0, 16(%0,%1,2)\n"
               :
               : "r"(reinterpret_cast<std::uintptr_t>(to) - 16), "r"(std::intptr_t{4})
               : "memory");
}

}  // namespace

TEST_CASE("the AMX level's machine code gives the bits of its emulation for every type and number of rows",
          "[kernels][.long]") {
  REQUIRE_AMX_VECTORS();
  const AmxTiles tiles;
  for (const DType type : kAllTypes) {
    for (const AmxShape shape : amx_shapes(type)) {
      INFO(dtype_info(type).name);
      check_machine_code(type, shape, {1, 2, 5, 15, 16, 17, 31, 32, 33, 64, 70, 97});
    }
  }
}

TEST_CASE("the AMX level's machine code gives the same bits where rows and panels are cut into blocks") {
  REQUIRE_AMX_VECTORS();
  const AmxTiles tiles;
  for (const DType type : {DType::kBF16, DType::kQ4_K})
    check_machine_code(type, {310, 768}, {1, 40, 550});
}

TEST_CASE("a tile product of the AMX level loads no more than one tile, and leaves no tiles configured") {
  REQUIRE_AMX_VECTORS();
  REQUIRE_TRAPPED_TILES();
  AmxTrap trap;
  constexpr std::int64_t kOutputs = 128, kDepth = 1024;
  for (const DType type : {DType::kBF16, DType::kQ8_0, DType::kQ4_K}) {
    for (const std::int64_t rows : {1, 16, 32, 33, 64, 256}) {
      INFO(rows << " rows of " << dtype_info(type).name);
      const AmxCounts counts = counts_of(trap, type, rows, kOutputs, kDepth);
      const std::int64_t halves = (rows + 15) / 16;
      CHECK(counts.products == halves * (kOutputs / 16) * (kDepth / 32));
      // An odd half multiplies two tiles of weights for three loads. Sums are stored after each block of depth, and
      // loaded again except after the last.
      const std::int64_t odd_half = halves % 2 == 0 ? 0 : counts.products / halves / 2;
      CHECK(counts.loads <= counts.products + odd_half + counts.stores);
      CHECK(counts.stores <= counts.products / 8);
      CHECK(counts.configures >= 1);
      CHECK(counts.configures + counts.releases <= counts.products / 8);
      CHECK(trap.configured_threads() == 0);
    }
  }
}

TEST_CASE("trapped tiles multiply as the instructions' description says") {
  REQUIRE_AMX_VECTORS();
  const AmxTiles tiles;
  configure(three_tiles(2, 8));
  // Two rows of two pairs times two pairs of two columns, in bf16 and as bytes.
  const std::uint16_t a[2][4] = {{0x3f80, 0x4000, 0x4040, 0x4080}, {0xbf80, 0x0001, 0x3f80, 0x7f80}};
  const std::uint16_t b[2][4] = {{0x3f80, 0x4000, 0x4040, 0x4080}, {0x3f80, 0x3f80, 0x3f80, 0xff80}};
  load_tiles(a, b);
  asm volatile("tdpbf16ps %tmm2, %tmm1, %tmm0");
  float products[2][2];
  store_tile(products);
  CHECK(products[0][0] == 1 * 1 + 2 * 2 + 3 * 1 + 4 * 1);
  CHECK(std::isinf(products[0][1]));
  CHECK(std::isinf(products[1][0]));
  CHECK(products[1][1] < 0);
  const std::int8_t c[2][8] = {{1, -2, 3, 4, 5, 6, 7, 8}, {-1, 0, 0, 0, 0, 0, 0, 0}};
  const std::int8_t d[2][8] = {{1, 1, 1, 1, -1, 0, 0, 0}, {1, 0, 0, 0, 0, 1, 0, 0}};
  std::int32_t sums[2][2];
  load_tiles(c, d);
  asm volatile("tdpbssd %tmm2, %tmm1, %tmm0");
  store_tile(sums);
  CHECK(sums[0][0] == 1 - 2 + 3 + 4 + 5);
  CHECK(sums[0][1] == -1 + 6);
  CHECK(sums[1][0] == -1);
  CHECK(sums[1][1] == 1);
  load_tiles(c, d);
  asm volatile("tdpbusd %tmm2, %tmm1, %tmm0");
  store_tile(sums);
  CHECK(sums[0][0] == 1 + 254 + 3 + 4 + 5);
  CHECK(sums[1][0] == 255);
  CHECK(sums[1][1] == -255);
  asm volatile("tilerelease");
}

TEST_CASE("trapped tiles refuse what the processor would refuse") {
  REQUIRE_AMX_VECTORS();
  REQUIRE_TRAPPED_TILES();
  const auto refused = [](void (*code)(), const char* why) {
    const auto [number, message] = signal_and_message(code);
    CHECK(number == SIGILL);
    CHECK_THAT(message, Catch::Contains(why));
  };
  refused([] { asm volatile("tilezero %tmm0"); }, "before the configuration");
  refused([] { configure(three_tiles(17, 64)); }, "beyond 16 rows");
  refused([] { configure(three_tiles(0, 64)); }, "rows without bytes");
  refused(
      [] {
        configure(three_tiles(16, 64));
        asm volatile("tilezero %tmm3");
      },
      "not configured");
  refused(
      [] {
        TileConfig config = three_tiles(16, 64);
        config.rows[2] = 8;
        configure(config);
        asm volatile("tdpbf16ps %tmm2, %tmm1, %tmm0");
      },
      "shapes do not fit");
  refused(
      [] {
        configure(three_tiles(16, 64));
        asm volatile("tilerelease\n\ttdpbf16ps %tmm2, %tmm1, %tmm0");
      },
      "after the release");
  refused([] { asm volatile("ud2"); }, "not of AMX");
  CHECK(signal_and_message([] { configure(three_tiles(16, 64)); }).first == 0);
}

}  // namespace quire::test
