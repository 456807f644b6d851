#include "server/cli/line/other_words.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "server/cli/line/command_tree.h"

namespace quire::cli {

namespace {

struct OtherName {
  std::string_view name;
  std::string_view words;  // Quire's, separated by a space
};

constexpr std::array kOtherNames = std::to_array<OtherName>({
    {"list", "models"},
    {"ls", "models"},
    {"rm", "models remove"},
    {"show", "inspect"},
    {"chat", "run"},
    {"version", "--version"},
    {"-v", "--version"},
    {"-V", "--version"},
});

struct Advice {
  std::string_view name;
  std::string_view text;
};

constexpr std::array kAdvice = std::to_array<Advice>({
    {"ps", "the daemon says what it has loaded: curl http://127.0.0.1:8080/api/ps"},
    {"stop", "the daemon ends with Ctrl-C or SIGTERM; a model of several is put to sleep by POST /admin/models/sleep"},
    {"create", "there is no Modelfile: serve the GGUF file itself, with --chat-template and --alias"},
    {"cp", "give the model a further name: quire serve MODEL --alias NAME NAME"},
    {"push", "models are not uploaded"},
});

}  // namespace

std::vector<std::string> own_command_words(std::vector<std::string> words) {
  if (words.empty()) return words;
  const auto known = std::find_if(kOtherNames.begin(), kOtherNames.end(),
                                  [&](const OtherName& other) { return other.name == words.front(); });
  if (known == kOtherNames.end()) return words;
  const std::string own(known->words);
  const std::size_t space = own.find(' ');
  words.front() = own.substr(0, space);
  if (space != std::string::npos) words.insert(words.begin() + 1, own.substr(space + 1));
  return words;
}

std::string other_command_advice(const std::string& command) {
  const auto known =
      std::find_if(kAdvice.begin(), kAdvice.end(), [&](const Advice& advice) { return advice.name == command; });
  return known == kAdvice.end() ? std::string() : std::string(known->text);
}

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

namespace {

std::string suggestion(const std::string& written, const std::vector<std::string>& names, const std::string& help) {
  const auto likely = likely_name(written, {names.begin(), names.end()});
  return (likely ? fmt::format("did you mean '{}'? ", *likely) : std::string()) + fmt::format("'{}' lists all", help);
}

// The command that the words select, after a parse.
const CLI::App& reached(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty())
    at = at->get_subcommands().front();
  return *at;
}

}  // namespace

std::string complain_of_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  for (const std::string& word : words) {
    const auto commands = commands_of(*at);
    if (commands.empty() || word.starts_with('-')) return {};
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* command : commands) {
      names.push_back(command->get_name());
      if (command->get_name() == word) next = command;
    }
    const std::string path = path_of(*at);
    const std::string advice = at == &app ? other_command_advice(word) : std::string();
    if (next == nullptr && !advice.empty()) return fmt::format("{}: there is no command '{}': {}", path, word, advice);
    if (next == nullptr)
      return fmt::format("{}: unknown command '{}'; {}", path, word, suggestion(word, names, path + " --help"));
    at = next;
  }
  return {};
}

std::string complain_of_rest(const CLI::App& app) {
  const CLI::App* at = &reached(app);
  const std::string path = path_of(*at);
  const std::vector<std::string> rest = app.remaining(true);
  const std::string written = rest.empty() ? "" : rest.front().substr(0, rest.front().find('='));
  if (!written.starts_with('-')) return fmt::format("{}: unexpected argument '{}'", path, written);
  std::vector<std::string> names;
  for (const CLI::Option* option : options_of(*at)) {
    for (const std::string& name : option->get_lnames())
      names.push_back("--" + name);
  }
  return fmt::format("{}: unknown option '{}'; {}", path, written, suggestion(written, names, path + " --help"));
}

std::string complain_of_arguments(const CLI::App& app, const std::string& what) {
  const std::string path = path_of(reached(app));
  return fmt::format("{}: {}; '{} --help' explains", path, what, path);
}

}  // namespace quire::cli
