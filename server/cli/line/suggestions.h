// The answer to a command line with an unknown command or flag: the nearest name. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace quire::cli {

// Empty if the first words of `words` are commands, else the line that names the unknown one and the nearest.
std::string complain_of_command(const CLI::App& app, const std::vector<std::string>& words);

// The line for words left after a parse: it names the first and the command's nearest flag.
std::string complain_of_rest(const CLI::App& app);

// The line for any other mistake: the command being read, and the error in its arguments.
std::string complain_of_arguments(const CLI::App& app, const std::string& what);

}  // namespace quire::cli
