// Texts made from the table of commands: --help, man pages, and completion for shells. Pure functions; any thread.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace quire::cli {

class HelpFormat : public CLI::Formatter {
 public:
  HelpFormat();
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  // Replaces CLI11's, whose versions differ: " TYPE=DEFAULT".
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_subcommand(const CLI::App* command) const override;
};

// Name of a subcommand's page: "quire-serve" or "quire-bench-serve".
std::string man_page_name(const CLI::App& command);
// Writes the page in roff's man macros; `command` is the program itself or one of its commands.
std::string man_page(const CLI::App& command);

// A script for "bash", "zsh" or "fish" that completes commands, flags and files. Empty for another shell.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace quire::cli
