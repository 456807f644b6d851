// The flags of every subcommand that computes: the instruction set, the number of threads, the type of the KV cache.
// One thread at a time.
#pragma once

#include "kernels/backend.h"
#include "kernels/registry.h"

namespace CLI {
class App;
}  // namespace CLI

namespace quire::cli {

// `options` must outlive the parsing of the command line.
void add_cpu_flags(CLI::App& command, CpuOptions& options);
// Adds `--kv-dtype`, with the names of `kv_cache.dtype`. `dtype` must outlive the parsing of the command line.
void add_kv_dtype_flag(CLI::App& command, KvDType& dtype);

}  // namespace quire::cli
