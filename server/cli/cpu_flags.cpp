#include "server/cli/cpu_flags.h"

#include <CLI/CLI.hpp>

namespace quire::cli {

void add_cpu_flags(CLI::App& command, CpuOptions& options) {
  std::string levels = "auto";
  for (const IsaLevel& level : cpu_isa_levels())
    levels += ", " + level.name;
  command.add_option("--isa", options.isa, levels)->capture_default_str();
  command.add_option("--threads", options.threads, "compute threads; 0: all cores")->capture_default_str();
}

}  // namespace quire::cli
