#include "tests/kernels/levels/amx_trap.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/levels/amx_decode.h"

namespace quire::test {
namespace {

constexpr int kNumTiles = 8;
constexpr int kMaxRows = 16;
constexpr int kMaxRowBytes = 64;

struct Tile {
  int rows = 0;
  int row_bytes = 0;
  alignas(64) std::uint8_t data[kMaxRows][kMaxRowBytes] = {};
  bool valid() const { return rows > 0; }
};

struct TileState {
  bool configured = false;
  Tile tiles[kNumTiles];
};

struct AtomicCounts {
  std::atomic<std::int64_t> configures{0}, releases{0}, zeros{0}, loads{0}, stores{0}, products{0};
};

// A signal handler can reach globals only.
thread_local TileState tile_state;
AtomicCounts amx_counts;
std::atomic<int> num_configured{0};
struct sigaction handler_before;

// Description of an instruction's fault; null: none.
using Fault = const char*;

void set_configured(bool configured) {
  if (configured != tile_state.configured) num_configured += configured ? 1 : -1;
  tile_state.configured = configured;
}

Fault load_configuration(const std::uint8_t* from) {
  const auto nonzero = [&](int begin, int end) {
    return std::any_of(from + begin, from + end, [](std::uint8_t byte) { return byte != 0; });
  };
  if (from[0] > 1) return "LDTILECFG: unknown palette";
  TileState next;
  if (from[0] == 1) {
    if (nonzero(2, 16) || nonzero(32, 48) || nonzero(56, 64)) return "LDTILECFG: reserved bytes are not zero";
    if (from[1] != 0) return "LDTILECFG: a start row, which only an interrupted instruction leaves";
    for (int t = 0; t < kNumTiles; ++t) {
      const int row_bytes = from[16 + 2 * t] | from[17 + 2 * t] << 8;
      const int rows = from[48 + t];
      if (rows > kMaxRows || row_bytes > kMaxRowBytes) return "LDTILECFG: a tile beyond 16 rows of 64 bytes";
      if ((rows == 0) != (row_bytes == 0)) return "LDTILECFG: a tile of rows without bytes, or of bytes without rows";
      next.tiles[t].rows = rows;
      next.tiles[t].row_bytes = row_bytes;
    }
  }
  set_configured(from[0] == 1);
  std::copy(next.tiles, next.tiles + kNumTiles, tile_state.tiles);
  ++amx_counts.configures;
  return nullptr;
}

void release() {
  set_configured(false);
  for (Tile& tile : tile_state.tiles)
    tile = Tile{};
  ++amx_counts.releases;
}

Fault move_tile(const AmxInstruction& in) {
  Tile& tile = tile_state.tiles[in.reg];
  if (!tile.valid()) return "a load or store of a tile that is not configured";
  for (int row = 0; row < tile.rows; ++row) {
    auto* memory = reinterpret_cast<std::uint8_t*>(in.address) + row * in.stride;
    if (in.operation == AmxOperation::kStore) {
      std::memcpy(memory, tile.data[row], static_cast<std::size_t>(tile.row_bytes));
    } else {
      std::memcpy(tile.data[row], memory, static_cast<std::size_t>(tile.row_bytes));
    }
  }
  ++(in.operation == AmxOperation::kStore ? amx_counts.stores : amx_counts.loads);
  return nullptr;
}

void zero_tile(Tile& tile) {
  std::memset(tile.data, 0, sizeof tile.data);
  ++amx_counts.zeros;
}

Fault check_product(const AmxInstruction& in) {
  if (in.reg == in.rm || in.reg == in.second || in.rm == in.second) return "a product of a tile with itself";
  const Tile& sums = tile_state.tiles[in.reg];
  const Tile& a = tile_state.tiles[in.rm];
  const Tile& b = tile_state.tiles[in.second];
  if (!sums.valid() || !a.valid() || !b.valid()) return "a product of a tile that is not configured";
  if (sums.row_bytes % 4 != 0 || a.row_bytes % 4 != 0 || b.row_bytes % 4 != 0) return "rows of part of an element";
  if (sums.rows != a.rows || sums.row_bytes != b.row_bytes || a.row_bytes / 4 != b.rows)
    return "a product of tiles whose shapes do not fit";
  return nullptr;
}

[[gnu::target("avx512f,fma"), gnu::noinline]] void multiply_bf16(Tile& sums, const Tile& a, const Tile& b) {
  constexpr int kPairs = kMaxRowBytes / 4;
  for (int m = 0; m < sums.rows; ++m) {
    float apart[2][kPairs] = {};  // even and odd elements of pairs have separate sums
    for (int k = 0; k < a.row_bytes / 4; ++k) {
      std::uint32_t left;
      std::memcpy(&left, &a.data[m][4 * k], 4);
      const std::uint32_t even_bits = left << 16;
      const std::uint32_t odd_bits = left & 0xffff0000u;
      float even, odd;
      std::memcpy(&even, &even_bits, 4);
      std::memcpy(&odd, &odd_bits, 4);
      std::uint32_t right[2][kPairs];
      std::memcpy(right[1], b.data[k], kMaxRowBytes);
      for (int n = 0; n < kPairs; ++n) {
        right[0][n] = right[1][n] << 16;
        right[1][n] &= 0xffff0000u;
      }
      float values[2][kPairs];
      std::memcpy(values, right, sizeof values);
      for (int n = 0; n < kPairs; ++n) {
        apart[0][n] = __builtin_fmaf(even, values[0][n], apart[0][n]);
        apart[1][n] = __builtin_fmaf(odd, values[1][n], apart[1][n]);
      }
    }
    float row[kPairs];
    std::memcpy(row, sums.data[m], kMaxRowBytes);
    for (int n = 0; n < kPairs; ++n)
      row[n] += apart[0][n] + apart[1][n];
    std::memcpy(sums.data[m], row, static_cast<std::size_t>(sums.row_bytes));
  }
}

int octet(std::uint8_t byte, bool is_signed) {
  return is_signed ? static_cast<std::int8_t>(byte) : byte;
}

void multiply_int8(Tile& sums, const Tile& a, const Tile& b, bool a_signed, bool b_signed) {
  for (int m = 0; m < sums.rows; ++m) {
    for (int n = 0; n < sums.row_bytes / 4; ++n) {
      std::uint32_t sum;  // wraps around
      std::memcpy(&sum, &sums.data[m][4 * n], 4);
      for (int k = 0; k < a.row_bytes; ++k) {
        const int product = octet(a.data[m][k], a_signed) * octet(b.data[k / 4][4 * n + k % 4], b_signed);
        sum += static_cast<std::uint32_t>(product);
      }
      std::memcpy(&sums.data[m][4 * n], &sum, 4);
    }
  }
}

Fault multiply(const AmxInstruction& in) {
  if (const Fault fault = check_product(in)) return fault;
  Tile& sums = tile_state.tiles[in.reg];
  const Tile& a = tile_state.tiles[in.rm];
  const Tile& b = tile_state.tiles[in.second];
  if (in.operation == AmxOperation::kMultiplyBf16) {
    // Rounds to nearest and reads and writes denormals as zeros, regardless of the thread's mode, which is restored
    // with all its registers when the handler returns.
    _mm_setcsr(0x1f80 | 0x8040);
    multiply_bf16(sums, a, b);
  } else {
    multiply_int8(sums, a, b, in.a_signed, in.b_signed);
  }
  ++amx_counts.products;
  return nullptr;
}

Fault execute(const AmxInstruction& in) {
  if (in.operation == AmxOperation::kConfigure) return load_configuration(reinterpret_cast<std::uint8_t*>(in.address));
  if (in.operation == AmxOperation::kRelease) {
    release();
    return nullptr;
  }
  if (!tile_state.configured) return "a tile instruction before the configuration or after the release";
  if (in.operation == AmxOperation::kLoad || in.operation == AmxOperation::kStore) return move_tile(in);
  if (in.operation != AmxOperation::kZero) return multiply(in);
  if (!tile_state.tiles[in.reg].valid()) return "TILEZERO of a tile that is not configured";
  zero_tile(tile_state.tiles[in.reg]);
  return nullptr;
}

// An unknown instruction, or one that the processor would refuse, is raised again for the signal's previous handler.
void on_illegal_instruction(int, siginfo_t*, void* context) {
  mcontext_t& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
  AmxInstruction instruction;
  Fault fault = "an instruction that is not of AMX";
  if (decode_amx(machine.gregs, instruction)) fault = execute(instruction);
  if (fault == nullptr) {
    machine.gregs[REG_RIP] += instruction.length;
    return;
  }
  constexpr char kPrefix[] = "illegal instruction: ";
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, kPrefix, sizeof kPrefix - 1);
  written = write(STDERR_FILENO, fault, std::strlen(fault));
  written = write(STDERR_FILENO, "\n", 1);
  sigaction(SIGILL, &handler_before, nullptr);
}

}  // namespace

AmxTrap::AmxTrap() {
  struct sigaction action {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  take_counts();
  sigaction(SIGILL, &action, &handler_before);
}

AmxTrap::~AmxTrap() {
  sigaction(SIGILL, &handler_before, nullptr);
}

AmxCounts AmxTrap::take_counts() {
  return {.configures = amx_counts.configures.exchange(0),
          .releases = amx_counts.releases.exchange(0),
          .zeros = amx_counts.zeros.exchange(0),
          .loads = amx_counts.loads.exchange(0),
          .stores = amx_counts.stores.exchange(0),
          .products = amx_counts.products.exchange(0)};
}

int AmxTrap::configured_threads() const {
  return num_configured.load();
}

bool has_amx_tiles() {
  return cpu_levels().back().supported();
}

bool has_amx_vectors() {
  return cpu_levels()[2].supported() && __builtin_cpu_supports("avx512bf16") != 0 &&
         __builtin_cpu_supports("avx512vbmi") != 0;
}

}  // namespace quire::test
