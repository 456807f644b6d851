// Man pages made from the table of commands: quire(1), and one for each command. Pure functions; any thread.
#pragma once

#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace quire::cli {

// Name of a subcommand's page: "quire-serve" or "quire-bench-serve".
std::string man_page_name(const CLI::App& command);
// Writes the page in roff's man macros; `command` is the program itself or one of its commands.
std::string man_page(const CLI::App& command);

}  // namespace quire::cli
