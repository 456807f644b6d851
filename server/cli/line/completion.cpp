#include "server/cli/line/help_texts.h"

#include <fmt/format.h>

#include <string_view>

#include "server/cli/line/command_tree.h"

namespace quire::cli {

namespace {

// The first sentence, without characters that would end a completion script's string or description.
std::string brief(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, std::min(text.find(". "), text.size()))) {
    if (c != '\'' && c != '[' && c != ']' && c != ':' && c != '\\' && c != '"' && c != '`' && c != '$') out += c;
  }
  return out;
}

std::vector<std::string> flags_of(const CLI::Option& option) {
  std::vector<std::string> flags;
  for (const std::string& name : option.get_lnames())
    flags.push_back("--" + name);
  for (const std::string& name : option.get_snames())
    flags.push_back("-" + name);
  return flags;
}

// Calls f(path of words behind "quire", app) for every command, parents first.
template <class F>
void for_each_command(const CLI::App& app, const std::string& path, const F& f) {
  f(path, app);
  for (const CLI::App* command : commands_of(app))
    for_each_command(*command, path.empty() ? command->get_name() : path + " " + command->get_name(), f);
}

std::string completions_of(const CLI::App& app) {
  std::string words;
  for (const CLI::App* command : commands_of(app))
    words += command->get_name() + " ";
  for (const CLI::Option* option : options_of(app)) {
    for (const std::string& flag : flags_of(*option))
      words += flag + " ";
  }
  if (!words.empty()) words.pop_back();
  return words;
}

std::string bash_script(const CLI::App& app) {
  std::string cases;
  for_each_command(app, "", [&](const std::string& path, const CLI::App& command) {
    cases += fmt::format("    '{}') words='{}' ;;\n", path, completions_of(command));
  });
  return fmt::format(R"(# bash completion for quire, made by: quire completion bash
_quire() {{
  local word path='' words='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${{COMP_WORDS[i]}}
    [[ $word == -* ]] && break
    path="${{path:+$path }}$word"
  done
  # The longest beginning of the words that is a command.
  while :; do
    case $path in
{}    esac
    [[ -n $words || -z $path ]] && break
    [[ $path == *' '* ]] && path=${{path% *}} || path=''
  done
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
  [[ ${{COMP_WORDS[COMP_CWORD]}} == -* || ${{#COMPREPLY[@]}} -gt 0 ]] || COMPREPLY=($(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o filenames -o bashdefault -F _quire quire
)",
                     cases);
}

std::string zsh_script(const CLI::App& app) {
  std::string out =
      "#compdef quire\n# zsh completion for quire, made by: quire completion zsh\n_quire() {\n  local path='' i\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n    [[ $words[i] == -* ]] && break\n    path=\"${path:+$path "
      "}$words[i]\"\n  done\n"
      "  while :; do\n    case $path in\n";
  for_each_command(app, "", [&](const std::string& path, const CLI::App& command) {
    std::string commands;
    for (const CLI::App* each : commands_of(command))
      commands += fmt::format(" '{}:{}'", each->get_name(), brief(each->get_description()));
    std::string flags;
    for (const CLI::Option* option : options_of(command)) {
      for (const std::string& flag : flags_of(*option))
        flags += fmt::format(" '{}[{}]{}'", flag, brief(option->get_description()),
                             takes_value(*option) ? ":value:_files" : "");
    }
    out += fmt::format(
        "      '{}') local -a commands=({}); (( $#commands )) && _describe command commands\n"
        "        _arguments -S{} '*:file:_files'; return ;;\n",
        path, commands, flags);
  });
  return out + "    esac\n    [[ $path == *' '* ]] && path=${path% *} || path=''\n  done\n}\n_quire \"$@\"\n";
}

std::string fish_script(const CLI::App& app) {
  std::string out = "# fish completion for quire, made by: quire completion fish\n";
  for_each_command(app, "", [&](const std::string& path, const CLI::App& command) {
    std::string seen = "__fish_use_subcommand";
    if (!path.empty()) {
      seen.clear();
      for (std::size_t at = 0; at < path.size();) {
        const std::size_t end = std::min(path.find(' ', at), path.size());
        seen +=
            fmt::format("{}__fish_seen_subcommand_from {}", seen.empty() ? "" : "; and ", path.substr(at, end - at));
        at = end + 1;
      }
    }
    for (const CLI::App* each : commands_of(command))
      out += fmt::format("complete -c quire -f -n '{}' -a {} -d '{}'\n", seen, each->get_name(),
                         brief(each->get_description()));
    for (const CLI::Option* option : options_of(command)) {
      std::string names;
      for (const std::string& name : option->get_lnames())
        names += " -l " + name;
      for (const std::string& name : option->get_snames())
        names += " -s " + name;
      if (names.empty()) continue;
      out += fmt::format("complete -c quire -n '{}'{}{} -d '{}'\n", seen, names, takes_value(*option) ? " -r" : "",
                         brief(option->get_description()));
    }
  });
  return out;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return bash_script(app);
  if (shell == "zsh") return zsh_script(app);
  if (shell == "fish") return fish_script(app);
  return {};
}

}  // namespace quire::cli
