#include "server/cli/cpu_flags.h"

#include <CLI/CLI.hpp>

namespace quire::cli {

void add_cpu_flags(CLI::App& command, CpuOptions& options) {
  std::string levels = "Instruction set of the kernels: auto";
  for (const IsaLevel& level : cpu_isa_levels())
    levels += ", " + level.name;
  command.add_option("--isa", options.isa, levels)->capture_default_str();
  command.add_option("--threads", options.threads, "Compute threads; 0: all cores")->capture_default_str();
}

}  // namespace quire::cli
