// HelpFormat: the layout of --help: defaults beside flags, descriptions wrapped to 100 columns. Immutable; any thread.
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

}  // namespace quire::cli
