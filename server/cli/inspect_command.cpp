// `quire inspect`: a model, described.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "core/model/formats/files/model_path.h"
#include "core/model/tools/inspect.h"
#include "kernels/registry.h"
#include "server/cli/commands.h"
#include "server/cli/cpu_flags.h"

namespace quire::cli {

namespace {

struct InspectArguments {
  std::string path;
  BackendOptions backend;
  InspectOptions shown;
  std::uint64_t adapter_bytes = 0;
  std::uint64_t gpu_bytes = 0;  // bytes of memory of the GPU to plan for; 0: this machine
  int num_gpus = 1;             // number of GPUs that compute the model together
  std::string draft_model;
  bool as_json = false;
};

void inspect(InspectArguments& arguments) {
  require_model_path(arguments.path);
  const bool is_planned = arguments.gpu_bytes > 0;
  if (is_planned) arguments.backend.device = "cpu";  // sizes are planned for a GPU
  if (!is_planned) arguments.backend.tensor_parallel = arguments.num_gpus;
  const auto backend = create_backend(arguments.backend);
  const MachineMemory machine = is_planned ? planned_gpu(arguments.gpu_bytes) : device_memory(arguments.backend);
  if (is_planned) arguments.shown.device = machine.limited_by;
  ServingLimits limits;
  limits.adapter_bytes = arguments.adapter_bytes;
  limits.num_ranks = arguments.num_gpus;
  limits.is_device = is_planned;
  if (arguments.as_json) {
    return fmt::print("{}", inspect_model_as_json(arguments.path, *backend, KvCacheOptions{}, limits, machine,
                                                  arguments.draft_model, arguments.shown.device));
  }
  fmt::print("{}", inspect_model(arguments.path, *backend, KvCacheOptions{}, limits, machine, arguments.shown,
                                 arguments.draft_model));
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* inspect_command =
      app.add_subcommand("inspect", "Describe a model: what it is, and the memory that serving it takes");
  inspect_command->add_option("MODEL", arguments->path, "GGUF file or Hugging Face directory")
      ->type_name("")
      ->required();
  inspect_command->add_flag("--metadata", arguments->shown.metadata, "List all keys of the file's metadata");
  inspect_command->add_flag("--tensors", arguments->shown.tensors, "List all tensors with type, shape and size");
  inspect_command
      ->add_option("--adapter-memory", arguments->adapter_bytes, "Plan for a model with so much memory for adapters")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(false));
  inspect_command
      ->add_option("--device-memory", arguments->gpu_bytes,
                   "Plan for a GPU with so much memory, which need not be here")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(false));
  inspect_command
      ->add_option("--tensor-parallel-size", arguments->num_gpus,
                   "Plan for so many GPUs that compute the model together")
      ->type_name("N")
      ->check(CLI::Range(1, 8));
  inspect_command->add_option("--draft-model", arguments->draft_model,
                              "A model that drafts for it, in the memory plan");
  inspect_command->add_flag("--json", arguments->as_json, "Print all of it as a JSON object");
  add_cpu_flags(*inspect_command, arguments->backend.cpu);
  inspect_command->callback([arguments] { inspect(*arguments); });
}

}  // namespace quire::cli
