#include "server/cli/line/suggestions.h"

#include <fmt/format.h>

#include "core/base/nearest_name.h"
#include "server/cli/line/command_tree.h"
#include "server/cli/line/other_names.h"

namespace quire::cli {

namespace {

std::string suggestion(const std::string& written, const std::vector<std::string>& names, const std::string& help) {
  const auto likely = likely_name(written, {names.begin(), names.end()});
  return (likely ? fmt::format("did you mean '{}'? ", *likely) : std::string()) + fmt::format("'{}' lists all", help);
}

// The command that the words select, after a parse.
const CLI::App& reached(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty())
    at = at->get_subcommands().front();
  return *at;
}

}  // namespace

std::string complain_of_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  for (const std::string& word : words) {
    const auto commands = commands_of(*at);
    if (commands.empty() || word.starts_with('-')) return {};
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* command : commands) {
      names.push_back(command->get_name());
      if (command->get_name() == word) next = command;
    }
    const std::string path = path_of(*at);
    const std::string advice = at == &app ? other_command_advice(word) : std::string();
    if (next == nullptr && !advice.empty()) return fmt::format("{}: there is no command '{}': {}", path, word, advice);
    if (next == nullptr)
      return fmt::format("{}: unknown command '{}'; {}", path, word, suggestion(word, names, path + " --help"));
    at = next;
  }
  return {};
}

std::string complain_of_rest(const CLI::App& app) {
  const CLI::App* at = &reached(app);
  const std::string path = path_of(*at);
  const std::vector<std::string> rest = app.remaining(true);
  const std::string written = rest.empty() ? "" : rest.front().substr(0, rest.front().find('='));
  if (!written.starts_with('-')) return fmt::format("{}: unexpected argument '{}'", path, written);
  std::vector<std::string> names;
  for (const CLI::Option* option : options_of(*at)) {
    for (const std::string& name : option->get_lnames())
      names.push_back("--" + name);
  }
  return fmt::format("{}: unknown option '{}'; {}", path, written, suggestion(written, names, path + " --help"));
}

std::string complain_of_arguments(const CLI::App& app, const std::string& what) {
  const std::string path = path_of(reached(app));
  return fmt::format("{}: {}; '{} --help' explains", path, what, path);
}

}  // namespace quire::cli
