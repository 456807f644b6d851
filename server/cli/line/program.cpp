#include "server/cli/line/program.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/log.h"
#include "core/base/memory/system_limits.h"
#include "core/base/result.h"
#include "server/cli/line/help_texts.h"
#include "server/cli/line/other_words.h"

namespace quire::cli {

namespace {

constexpr int kExitBadInput = 2;  // a bad configuration, model file or command line

}  // namespace

void prepare_program(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormat>());
  app.set_version_flag("--version", app.get_name() + " " QUIRE_VERSION);
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return complain_of_arguments(*failed, error.what()) + "\n";
  });
  app.require_subcommand(0, 1);  // a later argument with a command's name is no command
}

void add_commands(CLI::App& app, const std::vector<CommandGroup>& groups, const std::vector<std::string>& words) {
  const bool asks_help = words.size() > 1 && (words.front() == "help" || words.front() == "man");
  const std::string named = words.empty() ? "" : words[asks_help ? 1 : 0];
  for (const CommandGroup& group : groups) {
    for (const CommandRow& row : group.rows) {
      if (!is_built(row.module) && row.name == named)
        throw StartupError(fmt::format("the command '{}' {}", row.name, left_out(row.module)));
      if (!is_built(row.module)) continue;
      row.add(app);
      app.get_subcommand(std::string(row.name))->group(group.heading);
    }
  }
}

int run_words(CLI::App& app, std::vector<std::string> words) {
  if (words.empty()) {
    fmt::print(stderr, "{}", app.help());
    return kExitBadInput;
  }
  if (const std::string complaint = complain_of_command(app, words); !complaint.empty()) {
    fmt::print(stderr, "{}\n", complaint);
    return kExitBadInput;
  }
  try {
    std::reverse(words.begin(), words.end());  // the parser expects the last word first
    app.parse(std::move(words));
    return 0;
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::ExtrasError&) {
    fmt::print(stderr, "{}\n", complain_of_rest(app));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitBadInput;
  }
  return kExitBadInput;
}

int run_program(int argc, char** argv, const std::function<int(std::vector<std::string> words)>& program) {
  try {
    log::configure({});  // standard output is for results of commands
    return program({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "quire: {}\n", describe_failure(error));
  }
  return kExitBadInput;
}

}  // namespace quire::cli
