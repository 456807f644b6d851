#include "server/cli/line/other_names.h"

#include <algorithm>
#include <array>
#include <string_view>

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

}  // namespace quire::cli
