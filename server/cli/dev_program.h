// The way from quire to quire-dev, the program of the development commands. One thread at a time (main).
#pragma once

#include <string>
#include <vector>

namespace quire::cli {

// Whether the words name a command of quire-dev, or ask for its help.
bool is_dev_command(const std::vector<std::string>& words);

// Replaces this process by the quire-dev that lies beside its program. Throws StartupError, which says where the
// command is to be found, if none lies there.
[[noreturn]] void run_dev_program(std::vector<std::string> words);

}  // namespace quire::cli
