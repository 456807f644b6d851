// The text of a PTX module as the interpreter executes it: functions of instructions whose operands are all registers
// (constants and special registers have one of their own, which is set before the first instruction).
// Immutable after it is read; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace quire::ptx {

inline constexpr int kLanes = 32;

// An error in a text or in its execution; names the line.
class PtxError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Instruction;
class Warp;

// Executes an instruction for the lanes of a mask.
using Handler = void (*)(Warp& warp, const Instruction& in, std::uint32_t lanes);

// Classes in which instructions are counted.
enum class Kind : std::uint8_t {
  kFloat,    // arithmetic in f32
  kConvert,  // to and from f32
  kInteger,
  kSelect,  // comparisons, selections and operations on predicates
  kMove,
  kMma,
  kShuffle,
  kMemory,
  kCopyAsync,  // includes its commits and waits
  kBarrier,
  kBranch,
};
inline constexpr int kNumKinds = 11;

// How a warp proceeds after an instruction.
enum class Flow : std::uint8_t { kNext, kBranch, kExit, kCollective, kBlockBarrier };

enum class Space : std::uint8_t { kNone, kGlobal, kShared, kLocal, kParam };

struct Address {
  int base = -1;  // register
  std::int64_t offset = 0;
};

struct Instruction {
  Handler run = nullptr;
  Kind kind = Kind::kMove;
  Flow flow = Flow::kNext;
  int guard = -1;  // register of a predicate
  bool guard_negated = false;
  std::vector<int> registers;  // destinations, then sources
  Address addresses[2];
  int num_addresses = 0;
  int target = -1;  // instruction that a branch goes to
  Space space = Space::kNone;
  int bytes = 0;  // size of one element in memory
  bool is_signed = false;
  int elements = 1;             // elements of a vector
  int member_mask = -1;         // register of the lanes that meet; -1: all
  std::uint64_t dest_mask = 0;  // mask of the first destination's width
  int line = 0;
  std::string text;
};

// A register with a value from the first instruction on.
struct Constant {
  int number;
  std::uint64_t value;
};

struct Function {
  std::string name;  // mangled name
  int param_bytes = 0;
  int local_bytes = 0;
  int num_registers = 0;
  std::vector<Constant> constants;
  std::map<std::string, int> specials;  // %tid.x and so on
  std::vector<Instruction> instructions;
};

struct Module {
  std::vector<Function> functions;
};

// Address of the first byte of shared memory.
inline constexpr std::uint64_t kSharedBase = 1024;

}  // namespace quire::ptx
