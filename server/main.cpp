#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "config/flags.h"
#include "core/base/log.h"
#include "core/base/result.h"
#include "server/cli/commands.h"

namespace {

constexpr int kExitBadInput = 2;  // a bad configuration, model file or command line

// The same file and flags, read once more and compared with what is in force.
quire::ConfigSource read_again(std::shared_ptr<const quire::ConfigFlags> flags, const quire::Config& config) {
  return [flags, current = std::make_shared<quire::Config>(config)] {
    const quire::Config next = flags->resolve();
    return quire::ConfigProposal{next.serve, next.log, quire::compare_configs(*current, next),
                                 [current, next] { *current = next; }};
  };
}

// Here rather than beside the other commands: only main knows the configuration.
void add_serve(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "Serve a model over HTTP");
  const auto flags = std::make_shared<quire::ConfigFlags>(*command);
  command->callback([flags] {
    const quire::Config config = flags->resolve();
    if (flags->print_only()) return fmt::print("{}", quire::render_config(config));
    if (flags->check_only()) return fmt::print("the configuration is good\n");
    if (config.serve.model.path.empty() && config.serve.models.empty())
      throw quire::StartupError(
          "no model: give a GGUF file or a Hugging Face directory (quire serve MODEL), or set model.path or models in "
          "--config");
    quire::log::configure(config.log);
    throw CLI::RuntimeError(quire::serve(config.serve, read_again(flags, config)));
  });
}

void add_configuration(CLI::App& app) {
  app.add_subcommand("configuration", "Print the configuration reference, the page deploy/docs/configuration.md")
      ->callback([] { fmt::print("{}", quire::render_reference()); });
}

int run(int argc, char** argv) {
  CLI::App app("Quire serves large language models over HTTP with continuous batching.");
  app.set_version_flag("--version", "quire " QUIRE_VERSION);
  app.require_subcommand(1);
  quire::cli::add_bench(app);
  quire::cli::add_grammar(app);
  quire::cli::add_architectures(app);
  quire::cli::add_inspect(app);
  quire::cli::add_probe(app);
  quire::cli::add_simulate(app);
  quire::cli::add_render(app);
  quire::cli::add_parse_tools(app);
  quire::cli::add_synth(app);
  quire::cli::add_tokenize(app);
  add_configuration(app);
  add_serve(app);
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words.front() == "serve") quire::ConfigFlags::refuse_foreign_words(words);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitBadInput;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    quire::log::configure({});  // standard output is for what a command computes
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "quire: {}\n", error.what());
  }
  return kExitBadInput;
}
