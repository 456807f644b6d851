// Words of a command line that are not quire's own: names of other programs, commands of quire-dev, misspelt commands
// and flags. Pure functions, except run_dev_program(); one thread at a time.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace quire::cli {

// Translates other programs' words: `list` is `models`, `rm` is `models remove`, `-v` is `--version`.
std::vector<std::string> own_command_words(std::vector<std::string> words);

// Advice for a `command` of other programs that Quire lacks. Empty for any other word.
std::string other_command_advice(const std::string& command);

// Whether the words name a command of quire-dev, or ask for its help.
bool is_dev_command(const std::vector<std::string>& words);

// Replaces this process by the quire-dev that lies beside its program. Throws StartupError, which says where the
// command is to be found, if none lies there.
[[noreturn]] void run_dev_program(std::vector<std::string> words);

// Empty if the first words of `words` are commands, else the line that names the unknown one and the nearest.
std::string complain_of_command(const CLI::App& app, const std::vector<std::string>& words);

// The line for words left after a parse: it names the first and the command's nearest flag.
std::string complain_of_rest(const CLI::App& app);

// The line for any other mistake: the command being read, and the error in its arguments.
std::string complain_of_arguments(const CLI::App& app, const std::string& what);

}  // namespace quire::cli
