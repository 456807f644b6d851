#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "config/flags.h"
#include "core/base/log.h"
#include "core/base/result.h"
#include "core/model/formats/files/model_path.h"
#include "server/cli/commands.h"
#include "server/cli/downloads.h"
#include "server/cli/line/other_words.h"
#include "server/cli/line/program.h"
#include "server/cli/tokenize.h"

namespace {

// Reads the same file and flags again and compares them with the current configuration.
quire::ConfigSource read_again(std::shared_ptr<const quire::ConfigFlags> flags, const quire::Config& config) {
  return [flags, current = std::make_shared<quire::Config>(config)] {
    quire::Config next = flags->resolve();
    quire::check_successor(*current, next);
    quire::cli::keep_fetched_paths(current->serve, next.serve);
    return quire::ConfigProposal{next.serve, next.log, quire::compare_configs(*current, next),
                                 [current, next] { *current = next; }};
  };
}

// Here rather than beside the other commands: only main knows the configuration.
void add_serve(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "Serve a model over HTTP");
  const auto flags = std::make_shared<quire::ConfigFlags>(*command);
  command->callback([flags] {
    quire::Config config = flags->resolve();
    if (flags->print_only()) return fmt::print("{}", quire::render_config(config));
    const quire::ModelOptions& model = config.serve.model;
    const bool has_model = !model.path.empty() || !model.hf.empty() || !config.serve.models.empty();
    if (flags->check_only()) {
      if (!model.path.empty()) quire::require_model_path(model.path);
      quire::check_start(config.serve);
      return fmt::print("the configuration is good{}\n", has_model ? "" : "; it names no model, which MODEL has to");
    }
    if (!has_model)
      throw quire::StartupError(
          "no model: give a GGUF file or a Hugging Face directory (quire serve MODEL), a repository to download it "
          "from "
          "(quire serve --hf OWNER/NAME), or set model.path or models in --config");
    if (!model.path.empty()) quire::require_model_path(model.path);
    quire::log::configure(config.log);
    quire::cli::fetch_models(config.serve);
    throw CLI::RuntimeError(quire::serve(config.serve, read_again(flags, config)));
  });
}

std::vector<quire::cli::CommandGroup> commands(const std::vector<std::string>& words) {
  namespace cli = quire::cli;
  using quire::Module;
  const auto add_tokenize = [words](CLI::App& to) {
    cli::add_tokenize(to, [words](const cli::TokenizeArguments&) { cli::run_dev_program(words); });
  };
  return {
      {"Serve",
       {{"serve", add_serve},
        cli::command_of<Module::kTerminal, &cli::add_run>("run"),
        cli::command_of<Module::kTerminal, &cli::add_launch>("launch"),
        {"probe", cli::add_probe}}},
      {"Models",
       {{"recommend", cli::add_recommend},
        cli::command_of<Module::kHub, &cli::add_pull>("pull"),
        cli::command_of<Module::kHub, &cli::add_models>("models"),
        cli::command_of<Module::kHub, &cli::add_import>("import"),
        {"inspect", cli::add_inspect},
        {"tokenize", add_tokenize},
        {"synth", cli::add_synth}}},
      {"Measure and plan",
       {{"bench", cli::add_bench}, cli::command_of<Module::kSimulator, &cli::add_simulate>("simulate")}},
      {"Help", {{"help", cli::add_help}, {"completion", cli::add_completion}, {"man", cli::add_man}}},
  };
}

int run(std::vector<std::string> words) {
  CLI::App app("Quire serves large language models over HTTP with continuous batching.", "quire");
  quire::cli::prepare_program(app);
  app.footer("'quire help COMMAND' explains a command. First steps: quire serve MODEL, quire run MODEL.");
  words = quire::cli::own_command_words(std::move(words));
  if (quire::cli::is_dev_command(words)) quire::cli::run_dev_program(words);
  quire::cli::add_commands(app, commands(words), words);
  // llama-server's spelling, which a parser would read as the letters -h and -f.
  std::replace(words.begin(), words.end(), std::string("-hf"), std::string("--hf"));
  if (!words.empty() && words.front() == "serve") {
    quire::OwnWords own = quire::ConfigFlags::translated(words);
    if (!own.ignored.empty()) fmt::print(stderr, "quire serve: left out, {}\n", fmt::join(own.ignored, "; "));
    words = std::move(own.words);
  }
  return quire::cli::run_words(app, std::move(words));
}

}  // namespace

int main(int argc, char** argv) {
  return quire::cli::run_program(argc, argv, run);
}
