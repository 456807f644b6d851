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
  const std::vector<quire::cli::CommandGroup> groups = {
      {"Texts, as JSON lines",
       {{"grammar", dev::add_grammar},
        {"render", dev::add_render},
        {"parse-tools", dev::add_parse_tools},
        {"tokenize", dev::add_tokenize}}},
      {"Generated pages",
       {{"api", dev::add_api}, {"architectures", dev::add_architectures}, {"configuration", add_configuration}}},
      {"Help", {{"help", quire::cli::add_help}}},
  };
  quire::cli::add_commands(app, groups, words);
  return quire::cli::run_words(app, std::move(words));
}

}  // namespace

int main(int argc, char** argv) {
  return quire::cli::run_program(argc, argv, run);
}
