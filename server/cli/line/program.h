// The command line of a program, from its words to its exit code: quire's and quire-dev's. One thread at a time (main).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/modules/modules.h"

namespace CLI {
class App;
}  // namespace CLI

namespace quire::cli {

// Sets the form of the program's help and of its complaints. Before commands are added.
void prepare_program(CLI::App& app);

// A command of a program, in the build if its module is.
struct CommandRow {
  std::string_view name;
  std::function<void(CLI::App&)> add;
  Module module = Module::kCore;
};

// The row of a command whose sources are in the build only if their module is.
template <Module module, auto add>
CommandRow command_of(std::string_view name) {
  if constexpr (is_built(module)) {
    return {name, add, module};
  } else {
    return {name, nullptr, module};
  }
}

// Commands under one heading of the help.
struct CommandGroup {
  const char* heading;
  std::vector<CommandRow> rows;
};

// Adds the commands of the build. Throws StartupError if the words name one that is left out.
void add_commands(CLI::App& app, const std::vector<CommandGroup>& groups, const std::vector<std::string>& words);

// Runs the command that the words name; words that name none are answered with the nearest. Returns the exit code.
int run_words(CLI::App& app, std::vector<std::string> words);

// Runs `program` with the words after the program's name; errors are one line on standard error. Returns the exit code.
int run_program(int argc, char** argv, const std::function<int(std::vector<std::string> words)>& program);

}  // namespace quire::cli
