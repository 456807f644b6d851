// quire-dev: the commands by which the tree is developed and examined. It uses the daemon's own code and serves
// nothing.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "server/cli/commands.h"
#include "server/cli/line/program.h"
#include "server/dev/commands.h"

namespace {

void add_configuration(CLI::App& app) {
  app.add_subcommand("configuration", "Print the configuration reference, the page deploy/docs/configuration.md")
      ->callback([] { fmt::print("{}", quire::render_reference()); });
}

int run(std::vector<std::string> words) {
  namespace dev = quire::dev;
  CLI::App app("Commands for the development of Quire, with the daemon's own code.", "quire-dev");
  quire::cli::prepare_program(app);
  app.footer("'quire-dev help COMMAND' explains a command.");
  quire::cli::add_group(app, "Texts, as JSON lines",
                        {dev::add_grammar, dev::add_render, dev::add_parse_tools, dev::add_tokenize});
  quire::cli::add_group(app, "Generated pages", {dev::add_api, dev::add_architectures, add_configuration});
  quire::cli::add_group(app, "Help", {quire::cli::add_help});
  return quire::cli::run_words(app, std::move(words));
}

}  // namespace

int main(int argc, char** argv) {
  return quire::cli::run_program(argc, argv, run);
}
