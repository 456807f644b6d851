#include "server/cli/dev_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/base/result.h"

namespace quire::cli {

namespace {

// `tokenize` without a text is one too, which its own callback finds out.
constexpr std::array<std::string_view, 6> kCommands = {"grammar",       "render", "parse-tools",
                                                       "architectures", "api",    "configuration"};

}  // namespace

bool is_dev_command(const std::vector<std::string>& words) {
  const bool asks_help = words.size() > 1 && words.front() == "help";
  return !words.empty() && std::ranges::find(kCommands, words[asks_help ? 1 : 0]) != kCommands.end();
}

void run_dev_program(std::vector<std::string> words) {
  std::error_code failed;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", failed);
  std::string program = (own.parent_path() / "quire-dev").string();
  std::vector<char*> arguments = {program.data()};
  for (std::string& word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  const std::error_code error(errno, std::generic_category());
  throw StartupError(fmt::format(
      "'{}' (JSON lines, generated pages) is a command of quire-dev, which does not run as {}: {}; it is built "
      "from the source (ninja -C build/release quire-dev)",
      words.front(), program, error.message()));
}

}  // namespace quire::cli
