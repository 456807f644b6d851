#include "config/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/base/result.h"

namespace quire {
namespace {

std::string long_flag(const std::string& path) {
  std::string flag = "--" + path;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

[[noreturn]] void refuse_unknown(const std::string& written) {
  std::vector<std::string> names = {"--config", "--check-config", "--print-config", "--help"};
  for (const ConfigKey& key : config_keys()) {
    names.push_back(long_flag(key.path));
    names.insert(names.end(), key.flags.begin(), key.flags.end());
  }
  const std::string name = written.substr(0, written.find('='));
  throw StartupError(
      fmt::format("unknown option '{}'; did you mean '{}'?", name, nearest_name(name, {names.begin(), names.end()})));
}

}  // namespace

ConfigFlags::ConfigFlags(CLI::App& command) : command_(command) {
  command.allow_extras();
  command.add_option("--config", file_, "Configuration file (YAML); flags override it");
  command.add_flag("--check-config", check_only_, "Check the configuration, and end");
  command.add_flag("--print-config", print_only_, "Print the whole configuration as it results, and end");
  for (const ConfigKey& key : config_keys()) {
    std::string names = long_flag(key.path);
    for (const std::string& flag : key.flags)
      names += "," + flag;
    Flag& flag = flags_.emplace_back(Flag{&key, {}, nullptr});
    flag.option = command.add_option(names, flag.values, key.help + ". Takes " + key.accepts);
    if (!key.is_list) flag.option->expected(1);
    flag.option->type_name("")->group(key.path.substr(0, key.path.rfind('.')));
  }
}

Config ConfigFlags::resolve() const {
  const std::vector<std::string> unknown = command_.remaining();
  if (!unknown.empty()) refuse_unknown(unknown.front());
  Config config;
  if (!file_.empty()) load_config_file(config, file_);
  for (const Flag& flag : flags_) {
    if (flag.option->count() > 0) set_config_value(config, flag.key->path, flag.values, flag.option->get_name());
  }
  check_config(config);
  return config;
}

}  // namespace quire
