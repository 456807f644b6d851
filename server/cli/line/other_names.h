// Names by which users of Ollama and other programs look for commands of Quire. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

namespace quire::cli {

// Translates other programs' words: `list` is `models`, `rm` is `models remove`, `-v` is `--version`.
std::vector<std::string> own_command_words(std::vector<std::string> words);

// Advice for a `command` of other programs that Quire lacks. Empty for any other word.
std::string other_command_advice(const std::string& command);

}  // namespace quire::cli
