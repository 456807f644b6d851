// Each operation of the interpreter on values whose results the PTX ISA states.
#include <bit>
#include <catch2/catch.hpp>

#include "tests/ptx/machine/texts.h"

namespace quire::test {
namespace {

struct Known {
  const char* body;
  std::uint32_t result;
};

void check(std::initializer_list<Known> all) {
  for (const Known& known : all) {
    INFO(known.body);
    CHECK(result_of(known.body) == known.result);
  }
}

}  // namespace

TEST_CASE("the PTX interpreter computes integers as the ISA states") {
  check({
      {"add.s32 %r0, 2147483647, 1;", 0x80000000U},
      {"sub.s32 %r0, 3, 5;", 0xfffffffeU},
      {"mul.lo.s32 %r0, 65537, 65537;", 0x00020001U},
      {"mul.hi.s32 %r0, -2, 3;", 0xffffffffU},
      {"mul.hi.u32 %r0, -2, 3;", 2},
      {"mul.wide.s32 %rd0, -2, 3; shr.s64 %rd0, %rd0, 1; cvt.u32.u64 %r0, %rd0;", 0xfffffffdU},
      {"mul.wide.u32 %rd0, -1, -1; shr.u64 %rd0, %rd0, 32; cvt.u32.u64 %r0, %rd0;", 0xfffffffeU},
      {"mov.u16 %rs0, -7; mul.wide.s16 %r0, %rs0, 9;", static_cast<std::uint32_t>(-63)},
      {"mad.lo.s32 %r0, 7, -3, 30;", 9},
      {"div.s64 %rd0, -7, 2; cvt.u32.u64 %r0, %rd0;", static_cast<std::uint32_t>(-3)},
      {"div.u32 %r0, -1, 16;", 0x0fffffffU},
      {"rem.s32 %r0, -7, 2;", 0xffffffffU},
      {"min.s32 %r0, -1, 1;", 0xffffffffU},
      {"min.u32 %r0, -1, 1;", 1},
      {"max.s64 %rd0, -1, 1; cvt.u32.u64 %r0, %rd0;", 1},
      {"neg.s32 %r0, -2147483648;", 0x80000000U},
      {"abs.s32 %r0, -5;", 5},
      {"shr.s32 %r0, -16, 2;", 0xfffffffcU},
      {"shr.s32 %r0, -16, 40;", 0xffffffffU},
      {"shr.u32 %r0, -16, 28;", 15},
      {"shr.u32 %r0, -16, 32;", 0},
      {"shl.b32 %r0, 3, 31;", 0x80000000U},
      {"shl.b32 %r0, 3, 32;", 0},
      {"shl.b64 %rd0, 1, 40; shr.u64 %rd0, %rd0, 33; cvt.u32.u64 %r0, %rd0;", 128},
      {"not.b32 %r0, 0x0f0f0f0f;", 0xf0f0f0f0U},
      {"xor.b32 %r0, 12, 10;", 6},
  });
}

TEST_CASE("the PTX interpreter moves and chooses bits as the ISA states") {
  check({
      {"prmt.b32 %r0, 0x33221100, 0x77665544, 0x7520;", 0x77552200U},
      {"prmt.b32 %r0, 0x00800011, 0, 0x98a9;", 0x0000ff00U},
      {"lop3.b32 %r0, 12, 10, 6, 0x96;", 12 ^ 10 ^ 6},
      {"lop3.b32 %r0, 12, 10, 6, 0xea;", (12 & 10) | 6},
      {"bfe.u32 %r0, 0xabcd1234, 8, 8;", 0x12},
      {"bfe.s32 %r0, 0xabcd1234, 24, 8;", 0xffffffabU},
      {"bfe.s32 %r0, 0x80000000, 28, 8;", 0xfffffff8U},
      {"bfe.u32 %r0, -1, 4, 0;", 0},
      {"bfi.b32 %r0, 0xff, 0x11111111, 8, 4;", 0x11111f11U},
      {"bfi.b64 %rd0, -1, 0, 40, 4; shr.u64 %rd0, %rd0, 32; cvt.u32.u64 %r0, %rd0;", 0xf00U},
      {"bfi.b64 %rd0, 0xff, 0x1111111111111111, 40, 4; shr.u64 %rd0, %rd0, 32; cvt.u32.u64 %r0, %rd0;", 0x11111f11U},
      {"shf.l.wrap.b32 %r0, 0x80000000, 0x1, 1;", 3},
      {"shf.l.wrap.b32 %r0, 0x80000000, 0x1, 33;", 3},
      {"shf.l.clamp.b32 %r0, 0x80000000, 0x1, 33;", 0x80000000U},
      {"shf.r.clamp.b32 %r0, 0x80000000, 0x1, 31;", 3},
      {"popc.b32 %r0, 0xff00ff;", 16},
      {"clz.b32 %r0, 0x00ffffff;", 8},
      {"brev.b32 %r0, 0x3;", 0xc0000000U},
      {"dp4a.s32.s32 %r0, 0xff02ff02, 0x01030103, 100;", 100 - 1 + 6 - 1 + 6},
      {"dp4a.u32.s32 %r0, 0xff02ff02, 0x01030103, 100;", 100 + 255 + 6 + 255 + 6},
      {"dp2a.lo.s32.s32 %r0, 0xfffe0102, 0x0505ff03, 100;", 100 + 774 + 2},
      {"mov.b64 %rd0, {7, 9}; mov.b64 {%r1, %r0}, %rd0;", 9},
      {"mov.b32 {%rs0, %rs1}, 0x12345678; mov.b32 %r0, {%rs1, %rs0};", 0x56781234U},
      {"setp.lt.s32 %p0, -1, 0; selp.b32 %r0, 4, 5, %p0;", 4},
      {"setp.lt.u32 %p0, -1, 0; selp.b32 %r0, 4, 5, %p0;", 5},
      {"setp.eq.s32 %p0, 1, 1; not.pred %p1, %p0; or.pred %p2, %p0, %p1; and.pred %p3, %p2, %p1;"
       "selp.b32 %r0, 4, 5, %p3;",
       5},
      {"mov.u32 %r0, 1; setp.eq.s32 %p0, 1, 2; @%p0 mov.u32 %r0, 2; @!%p0 add.s32 %r0, %r0, 10;", 11},
  });
}

TEST_CASE("the PTX interpreter rounds f32 once, to nearest even") {
  check({
      {"add.rn.f32 %f0, 0f4B800000, 0f3F800000; mov.b32 %r0, %f0;", 0x4b800000U},  // 2^24 + 1
      {"add.rn.f32 %f0, 0f4B800001, 0f3F800000; mov.b32 %r0, %f0;", 0x4b800002U},  // ties to even
      {"mul.rn.f32 %f0, 0f00800000, 0f3F000000; mov.b32 %r0, %f0;", 0x00400000U},  // subnormals are kept
      {"fma.rn.f32 %f0, 0f3F800001, 0f3F800001, 0fBF800002; mov.b32 %r0, %f0;", 0x28800000U},
      {"mul.rn.f32 %f1, 0f3F800001, 0f3F800001; add.rn.f32 %f0, %f1, 0fBF800002; mov.b32 %r0, %f0;", 0},
      {"div.rn.f32 %f0, 0f3F800000, 0f40400000; mov.b32 %r0, %f0;", 0x3eaaaaabU},
      {"rcp.rn.f32 %f0, 0f40400000; mov.b32 %r0, %f0;", 0x3eaaaaabU},
      {"sqrt.rn.f32 %f0, 0f40000000; mov.b32 %r0, %f0;", 0x3fb504f3U},
      {"sqrt.rn.f32 %f0, 0fBF800000; mov.b32 %r0, %f0;", 0x7fffffffU},
      {"sub.rn.f32 %f0, 0f7F800000, 0f7F800000; mov.b32 %r0, %f0;", 0x7fffffffU},
      {"max.f32 %f0, 0f7FC00000, 0fBF800000; mov.b32 %r0, %f0;", 0xbf800000U},
      {"max.f32 %f0, 0f80000000, 0f00000000; mov.b32 %r0, %f0;", 0},
      {"min.f32 %f0, 0f00000000, 0f80000000; mov.b32 %r0, %f0;", 0x80000000U},
      {"neg.f32 %f0, 0f00000000; mov.b32 %r0, %f0;", 0x80000000U},
      {"setp.neu.f32 %p0, 0f7FC00000, 0f7FC00000; selp.b32 %r0, 4, 5, %p0;", 4},
      {"setp.ne.f32 %p0, 0f7FC00000, 0f3F800000; selp.b32 %r0, 4, 5, %p0;", 5},
      {"setp.gtu.f32 %p0, 0f7FC00000, 0f3F800000; selp.b32 %r0, 4, 5, %p0;", 4},
      {"setp.lt.f32 %p0, 0fBF800000, 0f3F800000; selp.b32 %r0, 4, 5, %p0;", 4},
  });
}

TEST_CASE("the PTX interpreter computes in f64, rounded once") {
  check({
      // 2^53 + 1 is a tie, 2^53 + 2 is exact.
      {"add.rn.f64 %fd0, 0d4340000000000000, 0d3FF0000000000000; mov.b64 {%r0, %r1}, %fd0;", 0},
      {"add.rn.f64 %fd0, 0d4340000000000000, 0d4000000000000000; mov.b64 {%r0, %r1}, %fd0;", 1},
      {"sub.rn.f64 %fd0, 0d3FF0000000000000, 0d3FF0000000000001; mov.b64 {%r1, %r0}, %fd0;", 0xbcb00000U},
      {"mul.rn.f64 %fd0, 0d3FF0000000000001, 0d3FF0000000000001; mov.b64 {%r0, %r1}, %fd0;", 2},
      {"cvt.f64.f32 %fd0, 0f3EAAAAAB; mov.b64 {%r0, %r1}, %fd0;", 0x60000000U},
      {"setp.gtu.f64 %p0, 0d7FF8000000000000, 0d3FF0000000000000; selp.b32 %r0, 4, 5, %p0;", 4},
      {"setp.lt.f64 %p0, 0dBFF0000000000000, 0d3FF0000000000000; selp.b32 %r0, 4, 5, %p0;", 4},
  });
}

TEST_CASE("the PTX interpreter converts as the ISA states") {
  check({
      {"cvt.rn.f32.s32 %f0, -3; mov.b32 %r0, %f0;", 0xc0400000U},
      {"cvt.rn.f32.u32 %f0, -1; mov.b32 %r0, %f0;", 0x4f800000U},
      {"cvt.rn.f32.s32 %f0, 16777217; mov.b32 %r0, %f0;", 0x4b800000U},
      {"cvt.rzi.s32.f32 %r0, 0fC0600000;", static_cast<std::uint32_t>(-3)},  // -3.5
      {"cvt.rni.s32.f32 %r0, 0fC0600000;", static_cast<std::uint32_t>(-4)},
      {"cvt.rzi.s32.f32 %r0, 0f4F800000;", 0x7fffffffU},
      {"cvt.rzi.s32.f32 %r0, 0f7FC00000;", 0},
      {"cvt.rzi.u32.f32 %r0, 0fBF800000;", 0},
      {"mov.u16 %rs0, 0xff80; cvt.s32.s16 %r0, %rs0;", 0xffffff80U},
      {"mov.u16 %rs0, 0xff80; cvt.u32.u16 %r0, %rs0;", 0xff80U},
      {"mov.u16 %rs0, 0x0180; cvt.s16.s8 %rs1, %rs0; cvt.u32.u16 %r0, %rs1;", 0xff80U},
      {"cvt.s64.s32 %rd0, -1; shr.u64 %rd0, %rd0, 60; cvt.u32.u64 %r0, %rd0;", 15},
      {"cvt.u64.u32 %rd0, -1; shr.u64 %rd0, %rd0, 28; cvt.u32.u64 %r0, %rd0;", 15},
      {"mov.u16 %rs0, 0x3c01; cvt.f32.f16 %f0, %rs0; mov.b32 %r0, %f0;", 0x3f802000U},
      {"mov.u16 %rs0, 0x8001; cvt.f32.f16 %f0, %rs0; mov.b32 %r0, %f0;", 0xb3800000U},  // the smallest
      {"mov.u16 %rs0, 0xfc00; cvt.f32.f16 %f0, %rs0; mov.b32 %r0, %f0;", 0xff800000U},
      {"cvt.rn.f16.f32 %rs0, 0f3F801000; cvt.u32.u16 %r0, %rs0;", 0x3c00},  // a tie
      {"cvt.rn.f16.f32 %rs0, 0f3F803000; cvt.u32.u16 %r0, %rs0;", 0x3c02},
      {"cvt.rn.f16.f32 %rs0, 0f477FF000; cvt.u32.u16 %r0, %rs0;", 0x7c00},  // rounds up beyond the largest
      {"cvt.rn.f16.f32 %rs0, 0f477FE000; cvt.u32.u16 %r0, %rs0;", 0x7bff},
      {"cvt.rn.f16.f32 %rs0, 0f33000000; cvt.u32.u16 %r0, %rs0;", 0},
      {"cvt.rn.f16.f32 %rs0, 0f33000001; cvt.u32.u16 %r0, %rs0;", 1},
      {"cvt.rn.f16.f32 %rs0, 0fFFC00000; cvt.u32.u16 %r0, %rs0;", 0x7fff},
      {"mov.u16 %rs0, 0xbf80; cvt.f32.bf16 %f0, %rs0; mov.b32 %r0, %f0;", 0xbf800000U},
      {"cvt.rn.bf16.f32 %rs0, 0f3F808000; cvt.u32.u16 %r0, %rs0;", 0x3f80},
      {"cvt.rn.bf16.f32 %rs0, 0f3F818000; cvt.u32.u16 %r0, %rs0;", 0x3f82},
  });
}

TEST_CASE("the PTX interpreter names the line of what it does not know") {
  CHECK_THROWS_WITH(result_of("frobnicate.b32 %r0, %r1;"),
                    Catch::Contains("line 9: an unknown instruction: frobnicate.b32"));
  CHECK_THROWS_WITH(result_of("bra nowhere;"), Catch::Contains("a branch to an unknown label: nowhere"));
  CHECK_THROWS_WITH(result_of("mov.u32 %r0, %nothing;"), Catch::Contains("not a number: %nothing"));
  CHECK_THROWS_WITH(result_of(".surprise 5;"), Catch::Contains("an unknown directive: .surprise"));
}

}  // namespace quire::test
