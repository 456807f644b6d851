// The command line of a program, from its words to its exit code: quire's and quire-dev's. One thread at a time (main).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace quire::cli {

// Sets the form of the program's help and of its complaints. Before commands are added.
void prepare_program(CLI::App& app);

// Adds the commands under this heading of the help.
void add_group(CLI::App& app, const char* name, const std::vector<std::function<void(CLI::App&)>>& commands);

// Runs the command that the words name; words that name none are answered with the nearest. Returns the exit code.
int run_words(CLI::App& app, std::vector<std::string> words);

// Runs `program` with the words after the program's name; errors are one line on standard error. Returns the exit code.
int run_program(int argc, char** argv, const std::function<int(std::vector<std::string> words)>& program);

}  // namespace quire::cli
