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
#include "core/base/system_limits.h"
#include "core/model/formats/model_path.h"
#include "server/cli/commands.h"
#include "server/cli/fetch_models.h"
#include "server/cli/line/help_format.h"
#include "server/cli/line/other_names.h"
#include "server/cli/line/suggestions.h"

namespace {

constexpr int kExitBadInput = 2;  // a bad configuration, model file or command line

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

void add_configuration(CLI::App& app) {
  app.add_subcommand("configuration", "Print the configuration reference, the page deploy/docs/configuration.md")
      ->callback([] { fmt::print("{}", quire::render_reference()); });
}

void add_commands(CLI::App& app) {
  const auto group = [&app](const char* name, std::initializer_list<void (*)(CLI::App&)> commands) {
    for (const auto& add : commands) {
      add(app);
      app.get_subcommands([](const CLI::App*) { return true; }).back()->group(name);
    }
  };
  namespace cli = quire::cli;
  group("Serve", {add_serve, cli::add_run, cli::add_launch, cli::add_probe});
  group("Models", {cli::add_recommend, cli::add_pull, cli::add_models, cli::add_import, cli::add_inspect,
                   cli::add_tokenize, cli::add_architectures, cli::add_synth});
  group("Measure and plan", {cli::add_bench, cli::add_simulate});
  group("Texts, as JSON lines", {cli::add_grammar, cli::add_render, cli::add_parse_tools});
  group("Help", {cli::add_help, add_configuration, cli::add_api, cli::add_completion, cli::add_man});
}

int parse(CLI::App& app, std::vector<std::string> words) {
  try {
    std::reverse(words.begin(), words.end());  // the parser expects the last word first
    app.parse(std::move(words));
    return 0;
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::ExtrasError&) {
    fmt::print(stderr, "{}\n", quire::cli::complain_of_rest(app));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitBadInput;
  }
  return kExitBadInput;
}

int run(int argc, char** argv) {
  CLI::App app("Quire serves large language models over HTTP with continuous batching.", "quire");
  app.formatter(std::make_shared<quire::cli::HelpFormat>());
  app.set_version_flag("--version", "quire " QUIRE_VERSION);
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return quire::cli::complain_of_arguments(*failed, error.what()) + "\n";
  });
  app.footer("'quire help COMMAND' explains a command. First steps: quire serve MODEL, quire run MODEL.");
  app.require_subcommand(0, 1);  // a later argument with a command's name is no command
  add_commands(app);
  std::vector<std::string> words = quire::cli::own_command_words({argv + 1, argv + argc});
  // llama-server's spelling, which a parser would read as the letters -h and -f.
  std::replace(words.begin(), words.end(), std::string("-hf"), std::string("--hf"));
  if (words.empty()) {
    fmt::print(stderr, "{}", app.help());
    return kExitBadInput;
  }
  const std::string complaint = quire::cli::complain_of_command(app, words);
  if (!complaint.empty()) {
    fmt::print(stderr, "{}\n", complaint);
    return kExitBadInput;
  }
  if (words.front() == "serve") {
    quire::OwnWords own = quire::ConfigFlags::translated(words);
    if (!own.ignored.empty()) fmt::print(stderr, "quire serve: left out, {}\n", fmt::join(own.ignored, "; "));
    words = std::move(own.words);
  }
  return parse(app, std::move(words));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    quire::log::configure({});  // standard output is for results of commands
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "quire: {}\n", quire::describe_failure(error));
  }
  return kExitBadInput;
}
