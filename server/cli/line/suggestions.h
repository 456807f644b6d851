// The answer to a command line with an unknown command or flag: the nearest name. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace quire::cli {

// Empty where the first words of `words` are commands, else the line that names the unknown one and the nearest.
std::string complain_of_command(const CLI::App& app, const std::vector<std::string>& words);

// After a parse that left words over: the line that names the first and the nearest flag of the command.
std::string complain_of_rest(const CLI::App& app);

// The line for another mistake: the command that was being read, and what is wrong with its arguments.
std::string complain_of_arguments(const CLI::App& app, const std::string& what);

}  // namespace quire::cli
