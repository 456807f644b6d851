// The flags of every subcommand that computes: the instruction set and the number of threads. One thread at a time.
#pragma once

#include "kernels/registry.h"

namespace CLI {
class App;
}  // namespace CLI

namespace quire::cli {

// `options` must outlive the parsing of the command line.
void add_cpu_flags(CLI::App& command, CpuOptions& options);

}  // namespace quire::cli
