// The subcommands that read JSON lines from stdin and answer on stdout, and `inspect`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "core/model/inspect.h"
#include "kernels/registry.h"
#include "server/cli/commands.h"
#include "server/cli/render.h"

namespace quire::cli {

namespace {

struct InspectArguments {
  std::string path;
  BackendOptions backend;
};

}  // namespace

void add_inspect(CLI::App& app) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* inspect =
      app.add_subcommand("inspect", "a model's metadata, tensors, and the memory that serving it takes");
  inspect->add_option("model", arguments->path, "GGUF file or Hugging Face directory")->required();
  inspect->add_option("--isa", arguments->backend.cpu.isa, "auto, scalar, avx2, avx512, amx")->capture_default_str();
  inspect->callback([arguments] {
    const auto backend = create_backend(arguments->backend);
    fmt::print("{}", inspect_model(arguments->path, *backend, KvCacheOptions{}, ServingLimits{}, machine_memory()));
  });
}

void add_render(CLI::App& app) {
  app.add_subcommand("render", R"(chat templates: {"template":...,"context":{...}} to {"text":...} or {"error":...})")
      ->callback([] { run_render(std::cin, std::cout); });
}

}  // namespace quire::cli
