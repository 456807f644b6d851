#include "config/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "config/foreign_flags.h"
#include "core/base/message_text.h"
#include "core/base/result.h"
#include "server/ops/keys/key_ring.h"

namespace quire {
namespace {

constexpr const char* kModelKey = "model.path";

std::string long_flag(const std::string& path) {
  std::string flag = "--" + path;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string group_of(const std::string& path) {
  const std::string section = path.substr(0, path.rfind('.'));
  for (const ConfigSection& each : config_sections()) {
    if (each.path == section) return fmt::format("{} ({})", section, each.help.substr(0, each.help.rfind('.')));
  }
  return section;
}

// An empty text or list has no default to show.
std::string shown_default(const ConfigKey& key, Config& defaults) {
  const std::string value = key.get(defaults);
  return value == "\"\"" || value == "[]" || value == "{}" ? "" : value;
}

// The variable of a key: QUIRE_SERVER_PORT for server.port.
std::string variable_of(const std::string& path) {
  std::string name = "QUIRE_";
  for (const char c : path)
    name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string describe_unknown(const std::string& written) {
  if (!written.starts_with('-')) {
    return fmt::format(
        "unexpected argument '{}': one MODEL is given; several go into the section 'models' of a --config file",
        written);
  }
  const std::string name = written.substr(0, written.find('='));
  for (const ConfigKey& key : left_out_config_keys()) {
    if (name == long_flag(key.path) || std::ranges::find(key.flags, name) != key.flags.end())
      return fmt::format("'{}' {}", name, left_out(key.module));
  }
  std::vector<std::string> names = {"--config", "--check-config", "--print-config",
                                    "--help",   "--api-key",      std::string(kSpeculativeFlag)};
  for (const ConfigKey& key : config_keys()) {
    names.push_back(long_flag(key.path));
    names.insert(names.end(), key.flags.begin(), key.flags.end());
  }
  const auto likely = likely_name(name, {names.begin(), names.end()});
  return fmt::format(
      "unknown option '{}'; {}", name,
      likely ? fmt::format("did you mean '{}'?", *likely) : std::string("'quire serve --help' lists all"));
}

// Names every flag among the words, or else the first word: words after an unknown flag may be its values.
[[noreturn]] void refuse_unknown(const std::vector<std::string>& unknown) {
  std::string text;
  for (const std::string& word : unknown) {
    if (word.starts_with('-') && word.size() > 1) text += (text.empty() ? "" : "; ") + describe_unknown(word);
  }
  throw StartupError(text.empty() ? describe_unknown(unknown.front()) : text);
}

}  // namespace

OwnWords ConfigFlags::translated(std::span<const std::string> words) {
  OwnWords own = own_words(words);
  if (!own.refused.empty()) throw StartupError(fmt::format("{}", fmt::join(own.refused, "; ")));
  return own;
}

ConfigFlags::ConfigFlags(CLI::App& command) : command_(command) {
  command.allow_extras();
  command.add_option("MODEL", model_, "GGUF file or Hugging Face directory; the same as --model")->type_name("");
  command.add_option("--config", file_, "Configuration file (YAML); flags override it")->type_name("FILE");
  command.add_flag(
      "--check-config", check_only_,
      "Check the configuration and all that a start needs (models, certificates, addresses, ...), then exit");
  command.add_flag("--print-config", print_only_, "Print the resulting configuration with comments, then exit");
  add_key_flags();
  command
      .add_option("--api-key", api_keys_,
                  "An API key that clients must send; repeat it for more. It is visible in the process list: "
                  "prefer security.keys with 'file' or 'env'")
      ->type_name("KEY")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all()
      ->group(group_of("security.keys"));
  speculative_option_ =
      command
          .add_option(
              std::string(kSpeculativeFlag), speculative_config_,
              "vLLM's speculation settings: a JSON object with 'method' (ngram, draft_model or mtp), 'model' and "
              "'num_speculative_tokens'")
          ->type_name("JSON")
          ->group(group_of("speculation.method"));
}

void ConfigFlags::add_key_flags() {
  Config defaults;
  for (const ConfigKey& key : config_keys()) {
    std::string names = long_flag(key.path);
    for (const std::string& flag : key.flags)
      names += "," + flag;
    Flag& flag = flags_.emplace_back(Flag{&key, {}, nullptr});
    flag.option = command_.add_option(names, flag.values, key.help + ". Takes " + key.accepts);
    if (!key.is_list) flag.option->expected(1)->allow_extra_args(false);
    flag.option->type_name("")->default_str(shown_default(key, defaults))->group(group_of(key.path));
  }
}

// A flag takes precedence over its key's environment variable, which is then not read.
void ConfigFlags::set_environment(Config& config) const {
  for (const ConfigKey& key : left_out_config_keys()) {
    const std::string name = variable_of(key.path);
    const char* const value = std::getenv(name.c_str());
    if (value != nullptr && *value != '\0') throw StartupError(fmt::format("{} {}", name, left_out(key.module)));
  }
  for (const Flag& flag : flags_) {
    const std::string name = variable_of(flag.key->path);
    const char* const value = std::getenv(name.c_str());
    const bool is_model = flag.key->path == kModelKey && !model_.empty();
    if (value == nullptr || *value == '\0' || flag.option->count() > 0 || is_model) continue;
    set_config_value(config, flag.key->path, {value}, name);
  }
}

// Replaces the keys that it stands for; both together are refused.
void ConfigFlags::set_speculation(Config& config) const {
  if (speculative_option_->count() == 0) return;
  for (const Flag& flag : flags_) {
    if (flag.key->path.starts_with("speculation.") && flag.option->count() > 0)
      throw StartupError(
          fmt::format("{} and {} exclude each other: give one of them", kSpeculativeFlag, flag.option->get_name()));
  }
  set_speculative_config(config, speculative_config_);
}

Config ConfigFlags::resolve() const {
  const std::vector<std::string> unknown = command_.remaining();
  if (!unknown.empty()) refuse_unknown(unknown);
  Config config;
  if (!file_.empty()) load_config_file(config, file_);
  set_environment(config);
  if (!model_.empty()) set_config_value(config, kModelKey, {model_}, "MODEL");
  for (const Flag& flag : flags_) {
    if (flag.option->count() == 0) continue;
    if (flag.key->path == kModelKey && !model_.empty()) {
      throw StartupError(fmt::format("the model is given twice: as '{}' and by {}", model_, flag.option->get_name()));
    }
    set_config_value(config, flag.key->path, flag.values, flag.option->get_name());
  }
  set_speculation(config);
  for (const std::string& key : api_keys_) {
    if (key.empty()) throw StartupError("--api-key: the key is empty");
    auto& keys = config.serve.server.security.keys;
    ApiKeyOptions& added = keys.emplace_back();
    added.name = fmt::format("api-key-{}", keys.size());
    added.sha256 = hash_of_key(key);
  }
  check_config(config);
  return config;
}

}  // namespace quire
