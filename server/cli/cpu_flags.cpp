#include "server/cli/cpu_flags.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "server/models/model_spec.h"

namespace quire::cli {

void add_cpu_flags(CLI::App& command, CpuOptions& options) {
  std::string levels = "Instruction set of the kernels: auto";
  for (const IsaLevel& level : cpu_isa_levels())
    levels += ", " + level.name;
  command.add_option("--isa", options.isa, levels)->capture_default_str();
  command.add_option("--threads", options.threads, "Compute threads; 0: all cores")->capture_default_str();
}

void add_kv_dtype_flag(CLI::App& command, KvDType& dtype) {
  std::vector<std::string> names;
  for (const auto& [name, type] : kKvDTypes)
    names.emplace_back(name);
  command
      .add_option_function<std::string>(
          "--kv-dtype", [&dtype](const std::string& name) { dtype = kv_dtype_of(name).value_or(dtype); },
          "Type of the KV cache, f16 where none is given")
      ->check(CLI::IsMember(names));
}

}  // namespace quire::cli
