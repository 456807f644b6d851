#include <fmt/format.h>

#include "config/keys.h"

namespace quire {
namespace {

std::string indent(std::string_view path) {
  std::string out;
  for (const char c : path) {
    if (c == '.') out += "  ";
  }
  return out;
}

// A comment, wrapped into full lines between words.
std::string comment(const std::string& text, const std::string& indentation) {
  constexpr std::size_t kWidth = 110;
  std::string out;
  std::string line;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && indentation.size() + 3 + line.size() + word.size() > kWidth) {
      out += fmt::format("{}# {}\n", indentation, line);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  return out + fmt::format("{}# {}\n", indentation, line);
}

std::string_view section_of(std::string_view path) {
  return path.substr(0, path.rfind('.'));
}

}  // namespace

std::string render_config(const Config& config) {
  Config current = config;
  std::string out =
      "# Quire's configuration: every key with its value. Flags override this file (--server.port 8000).\n";
  std::string_view section;
  for (const ConfigKey& key : config_keys()) {
    for (const ConfigSection& each : config_sections()) {
      if (each.path != section_of(key.path) || each.path == section) continue;
      section = each.path;
      const std::string indentation = indent(section);
      out += fmt::format("\n{}{}{}:\n", comment(std::string(each.help), indentation), indentation,
                         section.substr(section.rfind('.') + 1));
    }
    const std::string indentation = indent(key.path);
    if (key.path.find('.') == std::string::npos) out += "\n";  // a key without a section
    out += comment(fmt::format("{}. Takes {}.", key.help, key.accepts), indentation);
    out += fmt::format("{}{}: {}\n", indentation, key.path.substr(key.path.rfind('.') + 1), key.get(current));
  }
  return out;
}

}  // namespace quire
