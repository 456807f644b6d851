// Shell completion made from the table of commands. Pure function; any thread.
#pragma once

#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace quire::cli {

// A script for "bash", "zsh" or "fish" that completes commands, flags and files. Empty for another shell.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace quire::cli
