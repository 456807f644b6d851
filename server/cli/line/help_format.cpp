#include "server/cli/line/help_texts.h"

namespace quire::cli {

namespace {

constexpr std::size_t kLineWidth = 100;
constexpr std::size_t kColumn = 30;

// Puts `left` in the first column and wraps `right` beside it, or below it if it is too long.
std::string two_columns(const std::string& left, const std::string& right) {
  std::string out;
  std::string line = "  " + left;
  if (line.size() + 2 > kColumn && !right.empty()) {
    out += line + "\n";
    line.clear();
  }
  line.resize(std::max(line.size(), kColumn), ' ');
  std::size_t at = 0;
  bool begun = false;
  while (at < right.size()) {
    const std::size_t end = std::min(right.find(' ', at), right.size());
    const std::string word = right.substr(at, end - at);
    if (begun && line.size() + 1 + word.size() > kLineWidth) {
      out += line + "\n";
      line.assign(kColumn, ' ');
      begun = false;
    }
    line += (begun ? " " : "") + word;
    begun = true;
    at = end + 1;
  }
  return out + line + "\n";
}

}  // namespace

HelpFormat::HelpFormat() {
  column_width(kColumn);
}

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  return two_columns(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
}

std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  std::string text;
  if (option->get_type_size() != 0) {
    if (!option->get_type_name().empty()) text += " " + get_label(option->get_type_name());
    if (!option->get_default_str().empty()) text += "=" + option->get_default_str();
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
    if (option->get_required()) text += " " + get_label("REQUIRED");
  }
  if (!option->get_envname().empty()) text += " (" + get_label("Env") + ":" + option->get_envname() + ")";
  return text;
}

std::string HelpFormat::make_subcommand(const CLI::App* command) const {
  return two_columns(command->get_name(), command->get_description());
}

}  // namespace quire::cli
