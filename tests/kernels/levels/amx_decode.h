// Decodes the tile instructions of AMX (VEX-coded; Intel SDM, volume 2). Any thread; usable in a signal handler.
#pragma once

#include <ucontext.h>

#include <cstdint>

namespace quire::test {

enum class AmxOperation { kConfigure, kRelease, kZero, kLoad, kStore, kMultiplyBf16, kMultiplyInt8 };

struct AmxInstruction {
  AmxOperation operation = AmxOperation::kRelease;
  int length = 0;  // bytes of code
  int reg = 0;     // tile loaded, stored or zeroed; sums of a product
  int rm = 0;      // first factor
  int second = 0;  // second factor
  bool a_signed = false;
  bool b_signed = false;
  std::uintptr_t address = 0;
  std::intptr_t stride = 0;  // bytes from one row to the next
};

// Decodes the instruction at the registers' RIP; false if it is not one of these.
bool decode_amx(const gregset_t& registers, AmxInstruction& out);

}  // namespace quire::test
