#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/tools/synth.h"
#include "core/model/tools/synth_tower.h"
#include "server/cli/commands.h"
#include "server/cli/downloads.h"

namespace quire::cli {

namespace {

struct SynthArguments {
  std::string shape;
  std::string type = "Q8_0";
  std::string output;
  std::uint64_t seed = 1;
  std::optional<std::int64_t> layers;
  bool next_tokens = false;
};

void show_tensors(std::int64_t done, std::int64_t total) {
  show_progress_line(fmt::format("{} of {} tensors", done, total), done == total);
}

bool is_tower(const std::string& shape) {
  const auto names = synth_tower_names();
  return std::ranges::find(names, shape) != names.end();
}

std::vector<std::string> all_shapes() {
  std::vector<std::string> names = synth_shape_names();
  const auto towers = synth_tower_names();
  names.insert(names.end(), towers.begin(), towers.end());
  return names;
}

void run_synth(const SynthArguments& arguments) {
  if (is_tower(arguments.shape)) {
    if (arguments.layers || arguments.next_tokens)
      throw StartupError("--layers and --next-tokens are for language models, not for towers");
    return write_synthetic_tower(arguments.shape, find_synth_types(arguments.type)->matrices, arguments.seed,
                                 arguments.output, show_tensors);
  }
  SynthSpec spec = *find_synth_shape(arguments.shape);
  spec.types = *find_synth_types(arguments.type);
  spec.seed = arguments.seed;
  if (arguments.layers) keep_layers(spec, *arguments.layers);
  if (arguments.next_tokens) add_next_tokens(spec);
  write_synthetic_gguf(spec, arguments.output, show_tensors);
}

}  // namespace

void add_synth(CLI::App& app) {
  auto arguments = std::make_shared<SynthArguments>();
  CLI::App* synth =
      app.add_subcommand("synth", "Write a GGUF of random weights in a real model's shape, to measure speed");
  synth->add_option("--shape", arguments->shape, "The model whose shape it has, or its tower (-mmproj)")
      ->required()
      ->check(CLI::IsMember(all_shapes()));
  synth->add_option("--type", arguments->type, "Type of the weights")
      ->check(CLI::IsMember(synth_type_names(), CLI::ignore_case))
      ->capture_default_str();
  synth->add_option("--seed", arguments->seed, "Seed of the weights")->capture_default_str();
  synth->add_option("--layers", arguments->layers, "How many layers it has, where the whole shape is too large")
      ->check(CLI::Range(1, 1024));
  synth->add_flag("--next-tokens", arguments->next_tokens,
                  "Also the block that predicts the token after next (MTP), of shapes whose files can have one");
  synth->add_option("output", arguments->output, "The file to write")->required();
  synth->callback([arguments] { run_synth(*arguments); });
}

}  // namespace quire::cli
