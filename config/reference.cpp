#include <fmt/format.h>

#include "config/foreign_flags.h"
#include "config/keys.h"

namespace quire {
namespace {

constexpr std::string_view kHead =
    "# Configuration reference\n\n"
    "Made by `quire configuration`; a test compares this page with what that prints.\n\n"
    "A key is set in the file given by `--config`, or by its flag, which overrides the file: `server.port` is "
    "`--server.port 9000`,\n"
    "underscores become hyphens (`kv_cache.num_blocks` is `--kv-cache.num-blocks`). The column *flag* names shorter "
    "ones. "
    "A key marked\n"
    "*live* takes effect at a reload (`kill -HUP`); the others need a restart.\n\n"
    "| to | command |\n"
    "| --- | --- |\n"
    "| check a file | `quire serve --config FILE --check-config` |\n"
    "| see the resulting configuration | `quire serve --config FILE --print-config` |\n"
    "| start a file of one's own | `quire serve --print-config > quire.yaml` |\n\n"
    "Sizes are written as `512MiB` or `4GiB`, times as `500ms`, `30s` or `5m`. Unknown keys, wrong types and values "
    "out of "
    "range are\n"
    "refused with file, line and the nearest valid name.\n";

// A table's cell: a bar would end it.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string row(const ConfigKey& key, Config& defaults) {
  std::string flags;
  for (const std::string& flag : key.flags)
    flags += fmt::format("{}`{}`", flags.empty() ? "" : ", ", flag);
  return fmt::format("| `{}` | `{}` | {} | {} | {} | {} |\n", key.path, cell(key.get(defaults)), cell(key.accepts),
                     flags, key.is_live ? "live" : "", cell(key.help));
}

}  // namespace

std::string render_reference() {
  Config defaults;
  std::string out(kHead);
  const auto add_section = [&](std::string_view path, std::string_view help) {
    std::string rows;
    for (const ConfigKey& key : config_keys()) {
      const std::size_t dot = key.path.rfind('.');
      const std::string_view section = dot == std::string::npos ? key.path : std::string_view(key.path).substr(0, dot);
      if (section == path) rows += row(key, defaults);
    }
    if (rows.empty()) return;
    out += fmt::format(
        "\n## {}\n\n{}\n\n| key | default | values | flag | | meaning |\n| --- | --- | --- | --- | --- | --- |\n{}",
        path, help, rows);
  };
  for (const ConfigSection& section : config_sections()) {
    add_section(section.path, section.help);
    if (section.path == "model") add_section("models", "Several models in one process.");
  }
  out +=
      "\n## Flags of other servers\n\nThese flags of llama-server and vLLM are answered with the corresponding "
      "setting:\n\n"
      "| flag | in Quire |\n| --- | --- |\n";
  for (const ForeignFlag& flag : foreign_flags())
    out += fmt::format("| `{}` | {} |\n", flag.name, cell(flag.advice));
  return out;
}

}  // namespace quire
