// Man pages made from the table of commands: quire(1), and one for each command. Pure functions; any thread.
#pragma once

#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace quire::cli {

// Of a command, which has a parent; its name is "quire-serve" or "quire-bench-serve".
std::string man_page_name(const CLI::App& command);
// In roff's man macros; `command` is the program itself, or one of its commands.
std::string man_page(const CLI::App& command);

}  // namespace quire::cli
