#include "server/cli/line/help_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "server/cli/line/command_tree.h"

namespace quire::cli {

namespace {

// Escapes text for roff: backslashes, hyphens, and control characters at the beginning of a line.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

// Positionals first, then the flags of each group.
std::string option_rows(const CLI::App& command) {
  std::vector<std::pair<std::string, std::string>> groups;
  for (const CLI::Option* option : options_of(command)) {
    const bool is_positional = option->get_positional() && !option->nonpositional();
    const std::string group = is_positional ? "Arguments" : option->get_group();
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& each) { return each.first == group; });
    if (found == groups.end()) found = groups.insert(is_positional ? groups.begin() : groups.end(), {group, ""});
    std::string value = is_positional || !takes_value(*option) ? "" : " \\fIVALUE\\fR";
    if (!option->get_default_str().empty()) value += roff(" (default " + option->get_default_str() + ")");
    found->second += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(option->get_name(is_positional, !is_positional)),
                                 value, roff(option->get_description()));
  }
  std::string out;
  for (const auto& [name, rows] : groups)
    out += fmt::format(".SS {}\n{}", roff(name), rows);
  return out;
}

constexpr std::string_view kProgramPage =
    ".SH SIGNALS\n.TP\nSIGTERM, SIGINT\n"
    "\\fBquire serve\\fR drains: readiness turns red, new requests are refused, running ones finish within "
    "drain.deadline. A "
    "second signal cuts them.\n"
    ".TP\nSIGHUP\nThe configuration is read again: all of it takes effect, or nothing.\n"
    ".SH EXIT STATUS\n0: success; \\fBquire serve\\fR: no request was cut. 1: the command failed. 2: a bad "
    "configuration, model or "
    "command line; one line on standard error says what. 3: a drain cut requests.\n"
    ".SH FILES\n.TP\n/etc/quire/quire.yaml\nThe configuration of the service.\n"
    ".TP\n/usr/share/doc/quire/reference.yaml\nEvery key with its default.\n"
    ".TP\n/usr/share/doc/quire/deploy/docs\nThe guide.\n";

}  // namespace

std::string man_page_name(const CLI::App& command) {
  std::string name = path_of(command);
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string man_page(const CLI::App& command) {
  const std::string name = man_page_name(command);
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string out = fmt::format(".TH {} 1 \"\" \"quire {}\" \"User Commands\"\n.ad l\n.SH NAME\n{} \\- {}\n",
                                roff(upper), QUIRE_VERSION, roff(name), roff(command.get_description()));
  const auto commands = commands_of(command);
  std::string positionals;
  for (const CLI::Option* option : options_of(command))
    if (option->get_positional()) positionals += fmt::format(" [\\fI{}\\fR]", roff(option->get_name(true, false)));
  out += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR{} [\\fIOPTION\\fR]...{}\n", roff(path_of(command)),
                     commands.empty() ? "" : " \\fICOMMAND\\fR", positionals);
  if (!commands.empty()) {
    out += ".SH COMMANDS\n";
    for (const CLI::App* each : commands)
      out += fmt::format(".TP\n\\fB{}\\fR\n{}. See \\fB{}\\fR(1).\n", roff(each->get_name()),
                         roff(each->get_description()), roff(man_page_name(*each)));
  }
  out += ".SH OPTIONS\n" + option_rows(command);
  if (command.get_parent() == nullptr) return out + std::string(kProgramPage);
  return out + ".SH SEE ALSO\n\\fBquire\\fR(1)\n";
}

}  // namespace quire::cli
