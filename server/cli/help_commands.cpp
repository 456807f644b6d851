// `quire help`, `quire completion` and `quire man`: documentation of the program's own command line.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "server/cli/commands.h"
#include "server/cli/line/command_tree.h"
#include "server/cli/line/help_texts.h"
#include "server/cli/line/other_words.h"

namespace quire::cli {

namespace {

// The command that the words name. Throws StartupError with the nearest name.
const CLI::App& find_command(const CLI::App& app, const std::vector<std::string>& words) {
  const std::string complaint = complain_of_command(app, words);
  if (!complaint.empty()) throw StartupError(complaint);
  const CLI::App* at = &app;
  for (const std::string& word : words)
    at = at->get_subcommand(word);
  return *at;
}

void write_pages(const CLI::App& command, const std::filesystem::path& folder) {
  std::ofstream file(folder / (man_page_name(command) + ".1"));
  file << man_page(command);
  if (!file.flush()) throw StartupError(fmt::format("man: cannot write to {}", folder.string()));
  for (const CLI::App* each : commands_of(command))
    write_pages(*each, folder);
}

}  // namespace

void add_help(CLI::App& app) {
  const auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* help = app.add_subcommand("help", "Explain a command: quire help bench serve");
  help->add_option("COMMAND", *words, "The command; without it, the list of commands")->type_name("");
  help->callback([&app, words] {
    const CLI::App& command = find_command(app, *words);
    const CLI::App* parent = command.get_parent();
    fmt::print("{}", command.help(parent == nullptr ? "" : path_of(*parent)));
  });
}

void add_completion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* completion =
      app.add_subcommand("completion", "Print the completion script of a shell: quire completion bash");
  completion->add_option("SHELL", *shell, "bash, zsh or fish")
      ->type_name("")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([&app, shell] { fmt::print("{}", completion_script(app, *shell)); });
}

void add_man(CLI::App& app) {
  const auto words = std::make_shared<std::vector<std::string>>();
  const auto folder = std::make_shared<std::string>();
  CLI::App* man = app.add_subcommand("man", "Print a man page, in roff: quire man serve | man -l -");
  man->add_option("COMMAND", *words, "The command; without it, quire(1)")->type_name("");
  man->add_option("--all", *folder, "Write the pages of all commands into this folder")->type_name("FOLDER");
  man->callback([&app, words, folder] {
    if (!folder->empty()) return write_pages(app, *folder);
    fmt::print("{}", man_page(find_command(app, *words)));
  });
}

}  // namespace quire::cli
