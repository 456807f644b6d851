#include "tests/kernels/levels/amx_decode.h"

#include <cstring>

namespace quire::test {
namespace {

constexpr int kGeneralRegisters[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                     REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

enum Prefix { kNone = 0, k66 = 1, kF3 = 2, kF2 = 3 };

// VEX.128.0F38.W0 with its fields the right way round, and the bytes of ModRM.
struct Vex {
  Prefix prefix;
  bool x;  // extends the index
  bool b;  // extends the base
  int v;   // the third operand
  std::uint8_t opcode;
  int mod;
  int reg;
  int rm;
};

bool read_vex(const std::uint8_t* code, Vex& out) {
  if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84) != 0) return false;
  if ((code[1] & 0x80) == 0) return false;  // there are eight tiles, not sixteen
  out.prefix = static_cast<Prefix>(code[2] & 3);
  out.x = (code[1] & 0x40) == 0;
  out.b = (code[1] & 0x20) == 0;
  out.v = ~(code[2] >> 3) & 15;
  out.opcode = code[3];
  out.mod = code[4] >> 6;
  out.reg = (code[4] >> 3) & 7;
  out.rm = code[4] & 7;
  return true;
}

std::intptr_t signed_bytes(const std::uint8_t* from, int count) {
  std::int8_t one;
  std::int32_t four;
  std::memcpy(&one, from, 1);
  if (count == 1) return one;
  std::memcpy(&four, from, 4);
  return four;
}

// The memory operand behind ModRM. A scaled index is no part of the address of a tile, but its stride.
void read_memory(const gregset_t& registers, const std::uint8_t* code, const Vex& vex, bool tile, AmxInstruction& out) {
  const auto value = [&](int number) { return static_cast<std::intptr_t>(registers[kGeneralRegisters[number]]); };
  int at = 5;
  int base = vex.rm;
  std::intptr_t index = 0;
  if (vex.rm == 4) {
    const std::uint8_t sib = code[at++];
    base = sib & 7;
    const int number = ((sib >> 3) & 7) + (vex.x ? 8 : 0);
    if (number != 4) index = value(number) * (std::intptr_t{1} << (sib >> 6));
  }
  const bool no_base = vex.mod == 0 && base == 5;
  const int displacement_bytes = vex.mod == 1 ? 1 : vex.mod == 2 || no_base ? 4 : 0;
  std::intptr_t address = displacement_bytes == 0 ? 0 : signed_bytes(code + at, displacement_bytes);
  out.length = at + displacement_bytes;
  if (!no_base) {
    address += value(base + (vex.b ? 8 : 0));
  } else if (vex.rm == 5) {
    address += static_cast<std::intptr_t>(registers[REG_RIP]) + out.length;
  }
  out.address = static_cast<std::uintptr_t>(tile ? address : address + index);
  out.stride = index;
}

bool decode_product(const Vex& vex, AmxInstruction& out) {
  if (vex.mod != 3 || vex.b || vex.v > 7) return false;
  out.length = 5;
  out.rm = vex.rm;
  out.second = vex.v;
  if (vex.opcode == 0x5c) {
    out.operation = AmxOperation::kMultiplyBf16;
    return vex.prefix == kF3;
  }
  out.operation = AmxOperation::kMultiplyInt8;
  out.a_signed = vex.prefix == kF2 || vex.prefix == kF3;
  out.b_signed = vex.prefix == kF2 || vex.prefix == k66;
  return true;
}

// TILERELEASE, TILEZERO, LDTILECFG.
bool decode_state(const gregset_t& registers, const std::uint8_t* code, const Vex& vex, AmxInstruction& out) {
  if (vex.v != 0) return false;
  out.length = 5;
  if (vex.mod == 3) {
    const bool release = vex.prefix == kNone && vex.reg == 0;
    out.operation = release ? AmxOperation::kRelease : AmxOperation::kZero;
    return (release || vex.prefix == kF2) && vex.rm == 0;
  }
  if (vex.prefix != kNone || vex.reg != 0) return false;
  out.operation = AmxOperation::kConfigure;
  read_memory(registers, code, vex, false, out);
  return true;
}

}  // namespace

bool decode_amx(const gregset_t& registers, AmxInstruction& out) {
  const auto* code = reinterpret_cast<const std::uint8_t*>(registers[REG_RIP]);
  Vex vex{};
  if (!read_vex(code, vex)) return false;
  out.reg = vex.reg;
  if (vex.opcode == 0x5c || vex.opcode == 0x5e) return decode_product(vex, out);
  if (vex.opcode == 0x49) return decode_state(registers, code, vex, out);
  if (vex.opcode != 0x4b || vex.prefix == kNone || vex.v != 0 || vex.mod == 3 || vex.rm != 4) return false;
  out.operation = vex.prefix == kF3 ? AmxOperation::kStore : AmxOperation::kLoad;
  read_memory(registers, code, vex, true, out);
  return true;
}

}  // namespace quire::test
