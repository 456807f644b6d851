// Small texts of PTX for the interpreter's own tests. One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ptx/machine/machine.h"

namespace quire::test {

struct TextRun {
  std::vector<std::uint32_t> results;  // %r0 of each thread at the end
  ptx::LaunchCounts counts;
  ptx::Function function;
};

struct TextLaunch {
  int threads = 32;
  int shared_bytes = 0;
  ptx::RunOptions options = {};
  std::vector<std::uint32_t> input = {};  // in device memory at address %rd30
};

// Executes statements of a kernel that has 32 registers of each type (%p, %rs, %r, %f, %rd), %r31 = %tid.x and shared
// memory `memory`. Throws PtxError.
TextRun run_text(const std::string& body, const TextLaunch& launch = {});

// The only result of one thread's statements.
std::uint32_t result_of(const std::string& body);

}  // namespace quire::test
