#include "tests/ptx/machine/operations.h"

namespace quire::ptx {
namespace {

enum class Shuffle : std::uint8_t { kUp, kDown, kButterfly, kIndex };

// The lane that a value comes from, and whether it is one of the segment.
template <Shuffle kMode>
std::pair<std::uint32_t, bool> source_of(std::uint32_t lane, std::uint32_t by, std::uint32_t bounds) {
  const std::uint32_t b = by & 31U;
  const std::uint32_t clamp = bounds & 31U;
  const std::uint32_t segment = bounds >> 8 & 31U;
  const std::uint32_t last = (lane & segment) | (clamp & ~segment);
  std::int64_t from = 0;
  if constexpr (kMode == Shuffle::kUp) from = std::int64_t{lane} - b;
  if constexpr (kMode == Shuffle::kDown) from = std::int64_t{lane} + b;
  if constexpr (kMode == Shuffle::kButterfly) from = lane ^ b;
  if constexpr (kMode == Shuffle::kIndex) from = (lane & segment) | (b & ~segment);
  const bool inside = kMode == Shuffle::kUp ? from >= std::int64_t{last} : from <= std::int64_t{last};
  return {inside ? static_cast<std::uint32_t>(from) : lane, inside};
}

// Operands: d, maybe a predicate, a, b, c, the lanes that meet.
template <Shuffle kMode>
void shuffle(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::size_t first = in.registers.size() - 4;
  const LaneValues values = warp.lanes_of(in.registers[first]);
  for_lanes(lanes, [&](std::size_t lane) {
    const auto by = static_cast<std::uint32_t>(warp.lanes_of(in.registers[first + 1])[lane]);
    const auto bounds = static_cast<std::uint32_t>(warp.lanes_of(in.registers[first + 2])[lane]);
    const auto [from, inside] = source_of<kMode>(static_cast<std::uint32_t>(lane), by, bounds);
    if ((lanes >> from & 1U) == 0) warp.fail(in, lane, "takes a value of a lane that is not there");
    warp.lanes_of(in.registers[0])[lane] = values[from];
    if (first == 2) warp.lanes_of(in.registers[1])[lane] = inside ? 1 : 0;
  });
}

std::uint32_t ballot(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  std::uint32_t out = 0;
  for_lanes(lanes, [&](std::size_t lane) {
    if (warp.lanes_of(in.registers[1])[lane] != 0) out |= 1U << lane;
  });
  return out;
}

void vote_ballot(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint32_t votes = ballot(warp, in, lanes);
  for_lanes(lanes, [&](std::size_t lane) { warp.lanes_of(in.registers[0])[lane] = votes; });
}
void vote_any(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint32_t votes = ballot(warp, in, lanes);
  for_lanes(lanes, [&](std::size_t lane) { warp.lanes_of(in.registers[0])[lane] = votes != 0 ? 1 : 0; });
}
void vote_all(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint32_t votes = ballot(warp, in, lanes);
  for_lanes(lanes, [&](std::size_t lane) { warp.lanes_of(in.registers[0])[lane] = votes == lanes ? 1 : 0; });
}

void nothing(Warp& /*warp*/, const Instruction& /*in*/, std::uint32_t /*lanes*/) {}

// Byte `i` of a lane's operand that begins with register `first`.
template <class T>
std::int32_t byte_of(Warp& warp, const Instruction& in, std::size_t first, std::size_t lane, std::size_t i) {
  return static_cast<T>(warp.lanes_of(in.registers[first + i / 4])[lane] >> (8 * (i % 4)));
}

// D = A B + C of 16 x kDepth times kDepth x 8 bytes. In the ISA's words groupID is lane / 4, threadID_in_group lane
// % 4.
template <std::size_t kDepth, class A, class B>
void multiply(Warp& warp, const Instruction& in, std::uint32_t /*lanes*/) {
  constexpr std::size_t kA = 4;  // after four registers of D
  constexpr std::size_t kB = kA + kDepth / 8;
  constexpr std::size_t kC = kB + kDepth / 16;
  std::int32_t a[16][kDepth];
  std::int32_t b[kDepth][8];
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const std::size_t group = lane / 4;
    const std::size_t thread = lane % 4;
    for (std::size_t i = 0; i < kDepth / 2; ++i) {  // a_i: rows group and group + 8 in turns of four
      const std::size_t row = i / 4 % 2 == 0 ? group : group + 8;
      const std::size_t col = thread * 4 + i % 4 + (i < 8 ? 0 : 16);
      a[row][col] = byte_of<A>(warp, in, kA, lane, i);
    }
    for (std::size_t i = 0; i < kDepth / 4; ++i) {
      const std::size_t row = thread * 4 + i % 4 + (i < 4 ? 0 : 16);
      b[row][group] = byte_of<B>(warp, in, kB, lane, i);
    }
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    std::uint32_t sums[4];
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t row = i < 2 ? lane / 4 : lane / 4 + 8;
      const std::size_t col = lane % 4 * 2 + i % 2;
      std::int32_t sum = 0;
      for (std::size_t k = 0; k < kDepth; ++k)
        sum += a[row][k] * b[k][col];
      sums[i] = static_cast<std::uint32_t>(warp.lanes_of(in.registers[kC + i])[lane]) + static_cast<std::uint32_t>(sum);
    }
    for (std::size_t i = 0; i < 4; ++i)
      warp.lanes_of(in.registers[i])[lane] = sums[i];
  }
}

// D = A B + C of 16 x 16 times 16 x 8 floats of 16 bits. The ISA leaves the order and the rounding of a sum open: here
// C and the products, which are exact, are added in f64 in the order of the depth and rounded to f32 once.
template <class Half>
void multiply_halves(Warp& warp, const Instruction& in, std::uint32_t /*lanes*/) {
  constexpr std::size_t kA = 4;  // after four registers of D
  constexpr std::size_t kB = kA + 4;
  constexpr std::size_t kC = kB + 2;
  const auto element = [&](std::size_t first, std::size_t lane, std::size_t i) {
    const auto word = static_cast<std::uint32_t>(warp.lanes_of(in.registers[first + i / 2])[lane]);
    return static_cast<double>(Half::value(static_cast<std::uint16_t>(i % 2 == 0 ? word & 0xffffU : word >> 16)));
  };
  double a[16][16];
  double b[16][8];
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const std::size_t group = lane / 4;
    const std::size_t thread = lane % 4;
    for (std::size_t i = 0; i < 8; ++i) {
      const std::size_t row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
      const std::size_t col = thread * 2 + i % 2 + (i >= 4 ? 8 : 0);
      a[row][col] = element(kA, lane, i);
    }
    for (std::size_t i = 0; i < 4; ++i)
      b[thread * 2 + i % 2 + (i >= 2 ? 8 : 0)][group] = element(kB, lane, i);
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    std::uint64_t sums[4];
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t row = i < 2 ? lane / 4 : lane / 4 + 8;
      const std::size_t col = lane % 4 * 2 + i % 2;
      auto sum = static_cast<double>(value_of<float>(warp.lanes_of(in.registers[kC + i])[lane]));
      for (std::size_t k = 0; k < 16; ++k)
        sum += a[row][k] * b[k][col];
      sums[i] = bits_of(static_cast<float>(sum));
    }
    for (std::size_t i = 0; i < 4; ++i)
      warp.lanes_of(in.registers[i])[lane] = sums[i];
  }
}

// Bits of exponent and mantissa, by the format's definition.
template <int kMantissa>
struct HalfFormat {
  static float value(std::uint16_t bits) {
    constexpr int kExponents = 1 << (15 - kMantissa);
    constexpr int kBias = kExponents / 2 - 1;
    const int exponent = bits >> kMantissa & (kExponents - 1);
    const int mantissa = bits & ((1 << kMantissa) - 1);
    float magnitude = NAN;
    if (exponent == 0) {
      magnitude = std::ldexp(static_cast<float>(mantissa), 1 - kBias - kMantissa);
    } else if (exponent < kExponents - 1) {
      magnitude = std::ldexp(static_cast<float>(mantissa + (1 << kMantissa)), exponent - kBias - kMantissa);
    } else if (mantissa == 0) {
      magnitude = INFINITY;
    }
    return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
  }
};

template <class A, class B>
void add_mma(Operations& out, const std::string& types) {
  const std::string rest = ".row.col.s32." + types + ".s32";
  out["mma.sync.aligned.m16n8k16" + rest] = {&multiply<16, A, B>, Kind::kMma, Flow::kCollective};
  out["mma.sync.aligned.m16n8k32" + rest] = {&multiply<32, A, B>, Kind::kMma, Flow::kCollective};
}

}  // namespace

void add_warp_operations(Operations& out) {
  const auto add_meeting = [&](const char* name, Handler run, Kind kind) {
    out[name] = {.run = run, .kind = kind, .flow = Flow::kCollective, .has_member_mask = true};
  };
  add_meeting("shfl.sync.up.b32", &shuffle<Shuffle::kUp>, Kind::kShuffle);
  add_meeting("shfl.sync.down.b32", &shuffle<Shuffle::kDown>, Kind::kShuffle);
  add_meeting("shfl.sync.bfly.b32", &shuffle<Shuffle::kButterfly>, Kind::kShuffle);
  add_meeting("shfl.sync.idx.b32", &shuffle<Shuffle::kIndex>, Kind::kShuffle);
  add_meeting("vote.sync.ballot.b32", &vote_ballot, Kind::kShuffle);
  add_meeting("vote.sync.any.pred", &vote_any, Kind::kShuffle);
  add_meeting("vote.sync.all.pred", &vote_all, Kind::kShuffle);
  add_meeting("bar.warp.sync", &nothing, Kind::kBarrier);
  out["bar.sync"] = {&nothing, Kind::kBarrier, Flow::kBlockBarrier};
  out["barrier.sync.aligned"] = out["bar.sync"];
  add_mma<std::uint8_t, std::int8_t>(out, "u8.s8");
  add_mma<std::uint8_t, std::uint8_t>(out, "u8.u8");
  add_mma<std::int8_t, std::int8_t>(out, "s8.s8");
  add_mma<std::int8_t, std::uint8_t>(out, "s8.u8");
  const std::string halves = "mma.sync.aligned.m16n8k16.row.col.f32.";
  out[halves + "f16.f16.f32"] = {&multiply_halves<HalfFormat<10>>, Kind::kMma, Flow::kCollective};
  out[halves + "bf16.bf16.f32"] = {&multiply_halves<HalfFormat<7>>, Kind::kMma, Flow::kCollective};
  out["bra"] = {&nothing, Kind::kBranch, Flow::kBranch};
  out["bra.uni"] = out["bra"];
  out["ret"] = {&nothing, Kind::kBranch, Flow::kExit};
  out["exit"] = out["ret"];
}

const Operations& operations() {
  static const Operations kAll = [] {
    Operations out;
    add_integer_operations(out);
    add_bit_operations(out);
    add_float_operations(out);
    add_conversions(out);
    add_memory_operations(out);
    add_warp_operations(out);
    return out;
  }();
  return kAll;
}

}  // namespace quire::ptx
