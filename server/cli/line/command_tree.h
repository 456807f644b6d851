// The commands below a command, as CLI11 keeps them. Pure functions; any thread.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace quire::cli {

// Subcommands without option groups, which CLI11 keeps as commands without a name.
inline std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); });
}

// Options of a command and of its option groups.
inline std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  std::vector<const CLI::Option*> options = app.get_options();
  for (const CLI::App* group : app.get_subcommands([](const CLI::App* each) { return each->get_name().empty(); })) {
    for (const CLI::Option* option : group->get_options())
      options.push_back(option);
  }
  return options;
}

inline bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() != 0;
}

// "quire bench serve"
inline std::string path_of(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : path_of(*parent) + " " + command.get_name();
}

}  // namespace quire::cli
