// Warps, memory and counts of the interpreter, tested on small texts.
#include <bit>
#include <catch2/catch.hpp>
#include <numeric>

#include "kernels/formats/half.h"
#include "tests/ptx/machine/texts.h"

namespace quire::test {
namespace {

using Catch::Contains;

// Each thread writes its index to shared memory and reads that of the thread `distance` further on, 128 in all.
std::string exchange(const char* between, const char* distance) {
  return std::string("mov.u32 %r1, memory; shl.b32 %r2, %r31, 2; add.s32 %r2, %r1, %r2; st.shared.u32 [%r2], %r31;\n") +
         between + "add.s32 %r3, %r31, " + distance +
         "; and.b32 %r3, %r3, 127; shl.b32 %r3, %r3, 2; add.s32 %r3, %r1, %r3; ld.shared.u32 %r0, [%r3];";
}

// Returns whether some order of lanes and warps shows that the synchronisation between is insufficient.
bool some_order_fails(const std::string& text) {
  for (const std::uint64_t seed : {0U, 1U, 2U, 3U}) {
    try {
      const TextRun run = run_text(text, {.threads = 128, .shared_bytes = 512, .options = {.seed = seed}});
      for (std::uint32_t i = 0; i < 96; ++i) {
        if (run.results[i] < i) return true;
      }
    } catch (const ptx::PtxError& error) {
      CHECK_THAT(error.what(), Contains("reads shared memory that nothing wrote"));
      return true;
    }
  }
  return false;
}

std::vector<std::uint32_t> counted_up(std::size_t count) {
  std::vector<std::uint32_t> out(count);
  std::iota(out.begin(), out.end(), 0U);
  return out;
}

}  // namespace

TEST_CASE("the PTX interpreter finds a barrier of the block that is missing") {
  CHECK_FALSE(some_order_fails(exchange("bar.sync 0;", "32")));
  CHECK(some_order_fails(exchange("", "32")));
  CHECK(some_order_fails(exchange("bar.warp.sync -1;", "32")));
}

TEST_CASE("the PTX interpreter finds a barrier of the warp that is missing") {
  const std::string neighbour =
      "mov.u32 %r1, memory; shl.b32 %r2, %r31, 2; add.s32 %r2, %r1, %r2; st.shared.u32 [%r2], %r31;"
      "BETWEEN xor.b32 %r3, %r31, 1; shl.b32 %r3, %r3, 2; add.s32 %r3, %r1, %r3; ld.shared.u32 %r0, [%r3];"
      "max.u32 %r0, %r0, %r31;";
  const auto with = [&](const std::string& between) {
    std::string text = neighbour;
    return text.replace(text.find("BETWEEN"), 7, between);
  };
  CHECK_FALSE(some_order_fails(with("bar.warp.sync -1;")));
  CHECK(some_order_fails(with("")));
}

TEST_CASE("the PTX interpreter lands asynchronous copies when they are waited for") {
  const auto copies = [](const char* wait) {
    return std::string(
               "mov.u32 %r1, memory; shl.b32 %r2, %r31, 4; add.s32 %r2, %r1, %r2; mul.wide.u32 %rd1, %r31, 16;"
               "add.s64 %rd1, %rd30, %rd1; cp.async.cg.shared.global [%r2], [%rd1], 16; cp.async.commit_group;"
               "cp.async.cg.shared.global [%r2+512], [%rd1+512], 16; cp.async.commit_group;") +
           wait + "ld.shared.u32 %r0, [%r2+4];";
  };
  const TextLaunch launch{.shared_bytes = 1024, .input = counted_up(256)};
  const TextRun run = run_text(copies("cp.async.wait_group 1;"), launch);
  CHECK(run.results[3] == 13);
  CHECK_THROWS_WITH(run_text(copies(""), launch), Contains("reads shared memory that nothing wrote"));
  CHECK_THROWS_WITH(run_text(copies("cp.async.wait_group 2;"), launch), Contains("that nothing wrote"));
  TextLaunch early = launch;
  early.options.early_copies = true;
  CHECK(run_text(copies(""), early).results[3] == 13);
  CHECK_THROWS_WITH(run_text(copies("cp.async.cg.shared.global [%r2+4], [%rd1], 16;"), launch),
                    Contains("not aligned"));
  CHECK_THROWS_WITH(run_text(copies("cp.async.cg.shared.global [%r2+1024], [%rd1], 16;"), launch),
                    Contains("what is not shared memory"));
  CHECK_THROWS_WITH(run_text(copies("cp.async.cg.shared.global [%r2], [%rd1+1024], 16;"), launch),
                    Contains("outside of device memory"));
}

TEST_CASE("the PTX interpreter checks ranges and alignment of what is read and written") {
  const TextLaunch launch{.shared_bytes = 16, .input = counted_up(4)};
  CHECK(run_text("ld.global.u32 %r0, [%rd30+12];", launch).results[0] == 3);
  CHECK(run_text("ld.global.v2.u32 {%r1, %r0}, [%rd30+8];", launch).results[0] == 3);
  CHECK(run_text("ld.global.s8 %r0, [%rd30+4]; ld.global.u16 %rs0, [%rd30+8]; cvt.u32.u16 %r1, %rs0;"
                 "add.s32 %r0, %r0, %r1;",
                 launch)
            .results[0] == 3);
  CHECK_THROWS_WITH(run_text("ld.global.u32 %r0, [%rd30+-4];", launch), Contains("reads outside of device memory"));
  CHECK_THROWS_WITH(run_text("st.global.u32 [%rd30+-4], 1;", launch), Contains("writes outside of device memory"));
  CHECK_THROWS_WITH(run_text("ld.global.u32 %r0, [%rd30+2];", launch), Contains("is not aligned"));
  CHECK_THROWS_WITH(run_text("mov.u32 %r1, memory; st.shared.u32 [%r1+16], 1;", launch),
                    Contains("writes beyond shared memory"));
  CHECK_THROWS_WITH(run_text("ld.shared.u32 %r0, [0];", launch), Contains("reads beyond shared memory"));
  CHECK_THROWS_WITH(run_text("ld.param.u64 %rd0, [16];", launch), Contains("reads beyond the arguments"));
  CHECK(run_text(".local .align 16 .b8 depot[16]; .reg .b64 %SPL; mov.u64 %SPL, depot; st.local.u32 [%SPL+8], %r31;"
                 "ld.local.u32 %r0, [%SPL+8];")
            .results[7] == 7);
  CHECK_THROWS_WITH(run_text(".local .align 16 .b8 depot[16]; mov.u64 %rd0, depot; st.local.u32 [%rd0+16], %r31;"),
                    Contains("leaves its local memory"));
}

TEST_CASE("the PTX interpreter exchanges and votes between lanes, and names those that do not come") {
  CHECK(run_text("shfl.sync.bfly.b32 %r0|%p0, %r31, 16, 31, -1;").results[3] == 19);
  CHECK(run_text("shfl.sync.down.b32 %r0|%p0, %r31, 4, 31, -1;").results[30] == 30);
  CHECK(run_text("shfl.sync.up.b32 %r0|%p0, %r31, 4, 0, -1;").results[9] == 5);
  CHECK(run_text("shfl.sync.idx.b32 %r0, %r31, 1, 0x181f, -1;").results[21] == 17);
  CHECK(run_text("shfl.sync.down.b32 %r0|%p0, %r31, 4, 31, -1; selp.b32 %r0, 1, 0, %p0;").results[28] == 0);
  CHECK(run_text("setp.lt.u32 %p0, %r31, 5; vote.sync.ballot.b32 %r0, %p0, -1;").results[9] == 31);
  CHECK(run_text("setp.lt.u32 %p0, %r31, 5; vote.sync.any.pred %p1, %p0, -1; selp.b32 %r0, 1, 0, %p1;").results[9] ==
        1);
  CHECK(run_text("setp.lt.u32 %p0, %r31, 5; vote.sync.all.pred %p1, %p0, -1; selp.b32 %r0, 1, 0, %p1;").results[9] ==
        0);
  const std::string some = "setp.lt.u32 %p0, %r31, 5; @%p0 bra $out; shfl.sync.bfly.b32 %r0, %r31, 1, 31, -1; $out:";
  CHECK_THROWS_WITH(run_text(some), Contains("lane 5: other lanes do not come here"));
  CHECK_THROWS_WITH(run_text("setp.lt.u32 %p0, %r31, 40; @%p0 bra $out; bar.sync 0; $out:", {.threads = 64}),
                    Contains("other lanes do not come here"));
  CHECK_THROWS_WITH(run_text("setp.lt.u32 %p0, %r31, 32; @%p0 bra $out; bar.sync 0; $out:", {.threads = 64}),
                    Contains("warp 0 misses a barrier of the block"));
}

TEST_CASE("the PTX interpreter multiplies fragments of bytes as the tables of mma state") {
  std::vector<std::uint32_t> input(32 * 6);
  std::int32_t a[16][32];
  std::int32_t b[32][8];
  for (int k = 0; k < 32; ++k) {
    for (int row = 0; row < 16; ++row)
      a[row][k] = (row * 37 + k * 101) % 256;
    for (int col = 0; col < 8; ++col)
      b[k][col] = (k * 29 + col * 53) % 256 - 128;
  }
  for (std::size_t lane = 0; lane < 32; ++lane) {
    const auto group = static_cast<int>(lane / 4);
    for (std::size_t byte = 0; byte < 4; ++byte) {
      const int k = static_cast<int>(lane % 4 * 4 + byte);
      for (std::size_t word = 0; word < 4; ++word)  // rows group, group + 8; then the next 16 columns
        input[lane * 6 + word] |=
            static_cast<std::uint32_t>(a[group + (word % 2 == 1 ? 8 : 0)][k + (word < 2 ? 0 : 16)]) << (8 * byte);
      for (std::size_t word = 0; word < 2; ++word)
        input[lane * 6 + 4 + word] |= (static_cast<std::uint32_t>(b[k + (word == 0 ? 0 : 16)][group]) & 255U)
                                      << (8 * byte);
    }
  }
  const std::string load =
      "mul.wide.u32 %rd1, %r31, 24; add.s64 %rd1, %rd30, %rd1; ld.global.v2.u32 {%r1, %r2}, [%rd1];"
      "ld.global.v2.u32 {%r3, %r4}, [%rd1+8]; ld.global.v2.u32 {%r5, %r6}, [%rd1+16];"
      "mov.u32 %r10, 1; mov.u32 %r11, 2; mov.u32 %r12, 3; mov.u32 %r13, 4;";
  for (const int depth : {16, 32}) {
    const std::string operands = depth == 32 ? "{%r1,%r2,%r3,%r4}, {%r5,%r6}" : "{%r1,%r2}, {%r5}";
    for (int element = 0; element < 4; ++element) {
      const TextRun run = run_text(load + "mma.sync.aligned.m16n8k" + std::to_string(depth) +
                                       ".row.col.s32.u8.s8.s32 {%r10,%r11,%r12,%r13}, " + operands +
                                       ", {%r10,%r11,%r12,%r13}; mov.u32 %r0, %r1" + std::to_string(element) + ";",
                                   {.input = input});
      for (int lane = 0; lane < 32; ++lane) {
        std::int32_t sum = element + 1;
        for (int k = 0; k < depth; ++k)
          sum += a[lane / 4 + 8 * (element / 2)][k] * b[k][lane % 4 * 2 + element % 2];
        CHECK(run.results[static_cast<std::size_t>(lane)] == static_cast<std::uint32_t>(sum));
      }
    }
  }
}

TEST_CASE("the PTX interpreter multiplies fragments of 16-bit floats as the tables of mma state") {
  const auto bits_of_half = [](bool bf16, int value) -> std::uint32_t {
    return bf16 ? float_to_bf16(static_cast<float>(value)) : float_to_f16(static_cast<float>(value));
  };
  for (const bool bf16 : {false, true}) {
    int a[16][16];
    int b[16][8];
    for (int k = 0; k < 16; ++k) {
      for (int row = 0; row < 16; ++row)
        a[row][k] = (row * 37 + k * 101) % 250 - 125;
      for (int col = 0; col < 8; ++col)
        b[k][col] = (k * 29 + col * 53) % 256 - 128;
    }
    std::vector<std::uint32_t> input(32 * 6);
    for (std::size_t lane = 0; lane < 32; ++lane) {
      const auto group = static_cast<int>(lane / 4);
      for (std::size_t half = 0; half < 2; ++half) {
        const auto k = static_cast<int>(lane % 4 * 2 + half);
        const int of_a[] = {a[group][k], a[group + 8][k], a[group][k + 8], a[group + 8][k + 8]};
        const int of_b[] = {b[k][group], b[k + 8][group]};
        for (std::size_t word = 0; word < 6; ++word)
          input[lane * 6 + word] |= bits_of_half(bf16, word < 4 ? of_a[word] : of_b[word - 4]) << (16 * half);
      }
    }
    const std::string load =
        "mul.wide.u32 %rd1, %r31, 24; add.s64 %rd1, %rd30, %rd1; ld.global.v2.u32 {%r1, %r2}, [%rd1];"
        "ld.global.v2.u32 {%r3, %r4}, [%rd1+8]; ld.global.v2.u32 {%r5, %r6}, [%rd1+16];"
        "mov.f32 %f0, 0f3F000000; mov.f32 %f1, 0f3F000000; mov.f32 %f2, 0f3F000000; mov.f32 %f3, 0f3F000000;";
    const std::string types = bf16 ? "bf16.bf16" : "f16.f16";
    for (int element = 0; element < 4; ++element) {
      const TextRun run =
          run_text(load + "mma.sync.aligned.m16n8k16.row.col.f32." + types +
                       ".f32 {%f0,%f1,%f2,%f3}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f0,%f1,%f2,%f3}; mov.b32 %r0, %f" +
                       std::to_string(element) + ";",
                   {.input = input});
      for (int lane = 0; lane < 32; ++lane) {
        float sum = 0.5f;
        for (int k = 0; k < 16; ++k)
          sum += static_cast<float>(a[lane / 4 + 8 * (element / 2)][k] * b[k][lane % 4 * 2 + element % 2]);
        CHECK(run.results[static_cast<std::size_t>(lane)] == std::bit_cast<std::uint32_t>(sum));
      }
    }
  }
}

TEST_CASE("the PTX interpreter counts instructions, bank conflicts and sectors") {
  const auto accesses = [](const char* stride) {
    return run_text(std::string("mov.u32 %r1, memory; mul.lo.s32 %r2, %r31, ") + stride +
                        "; add.s32 %r2, %r1, %r2; st.shared.u32 [%r2], %r31; mov.u32 %r0, 0;",
                    {.shared_bytes = 32 * 128});
  };
  CHECK(accesses("4").counts.bank_conflicts() == 0);
  CHECK(accesses("0").counts.bank_conflicts() == 0);  // all lanes read the same word
  CHECK(accesses("8").counts.bank_conflicts() == 1);
  CHECK(accesses("128").counts.bank_conflicts() == 31);
  CHECK(accesses("132").counts.bank_conflicts() == 0);
  CHECK(accesses("4").counts.executed(accesses("4").function, ptx::Kind::kMemory) == 4);
  const auto vectors = [](const char* stride) {
    return run_text(std::string("mov.u32 %r1, memory; mul.lo.s32 %r2, %r31, ") + stride +
                        "; add.s32 %r2, %r1, %r2; st.shared.v4.u32 [%r2], {%r31, %r31, %r31, %r31}; mov.u32 %r0, 0;",
                    {.shared_bytes = 32 * 144})
        .counts.bank_conflicts();
  };
  CHECK(vectors("16") == 0);  // eight lanes at once
  CHECK(vectors("32") == 4);
  CHECK(vectors("144") == 0);
  CHECK(ptx::sectors_of({.of = {0, 4, 28, 32}, .lanes = 15, .bytes = 4}).size() == 2);
  CHECK(ptx::sectors_of({.of = {30}, .lanes = 1, .bytes = 4}).size() == 2);
  // Halves of a warp diverge and come together again.
  const TextRun split = run_text(
      "setp.lt.u32 %p0, %r31, 16; @%p0 bra $low; mov.u32 %r0, 1; bra.uni $out; $low: mov.u32 %r0, 2; $out: neg.s32 "
      "%r0, %r0;");
  CHECK(split.results[3] == static_cast<std::uint32_t>(-2));
  CHECK(split.results[20] == static_cast<std::uint32_t>(-1));
  CHECK(split.counts.executed(split.function, [](const ptx::Instruction& in) { return in.text.starts_with("neg"); }) ==
        1);
}

}  // namespace quire::test
