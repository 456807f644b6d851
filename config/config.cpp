#include "config/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/keys.h"
#include "core/base/files/regular_file.h"
#include "core/base/message_text.h"
#include "core/base/result.h"

namespace quire {
namespace {

std::string_view last_part(std::string_view path) {
  return path.substr(path.rfind('.') + 1);
}

bool is_section(std::string_view path) {
  const auto& sections = config_sections();
  return std::any_of(sections.begin(), sections.end(),
                     [&](const ConfigSection& section) { return section.path == path; });
}

// Prefers a key that differs in its section only.
std::string_view nearest_key(const std::string& path) {
  std::vector<std::string_view> names;
  for (const ConfigKey& key : config_keys()) {
    if (last_part(key.path) == last_part(path)) names.push_back(key.path);
  }
  if (!names.empty()) return nearest_name(path, names);
  for (const ConfigKey& key : config_keys())
    names.push_back(key.path);
  for (const ConfigSection& section : config_sections())
    names.push_back(section.path);
  return nearest_name(path, names);
}

std::string_view first_key_of(const std::string& section) {
  const auto& keys = config_keys();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& key) { return key.path.starts_with(section + "."); });
  return found == keys.end() ? std::string_view(section) : std::string_view(found->path);
}

class Loader {
 public:
  Loader(Config& config, const std::string& name) : config_(config), name_(name) {}

  void apply(const ConfigValue& map, const std::string& prefix) {
    for (const auto& [name, line, value] : map.members) {
      const std::string path = prefix + name;
      if (const ConfigKey* key = find_config_key(path)) {
        const std::string complaint = key->set(config_, value);
        if (!complaint.empty()) fail(line, fmt::format("'{}' {}", path, complaint));
        config_.file.keys.insert(path);
      } else if (const ConfigKey* absent = find_left_out_config_key(path)) {
        fail(line, fmt::format("'{}' {}", path, left_out(absent->module)));
      } else if (!is_section(path)) {
        fail(line, fmt::format("unknown key '{}'; did you mean '{}'?", one_line(path), nearest_key(path)));
      } else if (value.kind == ConfigValue::Kind::kMap) {
        apply(value, path + ".");
      } else if (value.kind != ConfigValue::Kind::kNull) {
        fail(line, fmt::format("'{}' must be a mapping of keys, such as '{}'", path, first_key_of(path)));
      }
    }
  }

 private:
  [[noreturn]] void fail(int line, const std::string& what) const {
    throw StartupError(fmt::format("{}:{}: {}", name_, line, what));
  }

  Config& config_;
  const std::string& name_;
};

}  // namespace

void load_config_text(Config& config, std::string_view text, const std::string& name) {
  Config loaded = config;
  loaded.file = {name, {}, text.empty() || text.back() == '\n'};
  Loader(loaded, name).apply(read_yaml(text, name), "");
  config = std::move(loaded);
}

void load_config_file(Config& config, const std::filesystem::path& path) {
  // A larger file is refused without being read.
  constexpr std::size_t kMostRead = std::size_t{1} << 20;
  const auto text = read_regular_file(path, kMostRead);
  if (!text) throw StartupError(fmt::format("{}: {}", path.string(), text.error()));
  load_config_text(config, *text, path.string());
}

void set_config_value(Config& config, std::string_view path, const std::vector<std::string>& values,
                      const std::string& flag) {
  const ConfigKey* key = find_config_key(path);
  if (key == nullptr) throw StartupError(fmt::format("{}: unknown key '{}'", flag, one_line(path)));
  ConfigValue value;
  if (key->is_list) {
    value.kind = ConfigValue::Kind::kList;
    for (const std::string& text : values) {
      value.items.emplace_back().kind = ConfigValue::Kind::kScalar;
      value.items.back().text = text;
    }
  } else {
    value.kind = ConfigValue::Kind::kScalar;
    value.text = values.empty() ? "" : values.back();
  }
  const std::string complaint = key->set(config, value);
  if (!complaint.empty()) throw StartupError(fmt::format("{}: '{}' {}", flag, path, complaint));
}

std::vector<ConfigChange> compare_configs(const Config& current, const Config& next) {
  Config before = current;
  Config after = next;
  std::vector<ConfigChange> changes;
  for (const ConfigKey& key : config_keys()) {
    std::string old_value = key.get(before);
    std::string new_value = key.get(after);
    if (old_value == new_value) continue;
    if (key.is_secret) old_value = new_value = "(not shown)";
    changes.push_back({key.path, std::move(old_value), std::move(new_value), !key.is_live});
  }
  return changes;
}

void check_successor(const Config& current, const Config& next) {
  const ConfigFile& before = current.file;
  const ConfigFile& after = next.file;
  constexpr const char* kAdvice = "write a new version beside it and rename it over this one, then reload again";
  if (!before.keys.empty() && after.keys.empty())
    throw StartupError(fmt::format("{}: sets nothing any more; {}", after.name, kAdvice));
  if (before.ends_line && !after.ends_line)
    throw StartupError(
        fmt::format("{}: its last line has no line break, as in a file that is half written; {}", after.name, kAdvice));
  const Config defaults;
  for (const ConfigChange& change : compare_configs(current, next)) {
    const bool protects = change.key.starts_with("security.") || change.key.starts_with("server.tls.");
    if (!protects || !before.keys.contains(change.key) || after.keys.contains(change.key)) continue;
    Config shown = defaults;
    throw StartupError(
        fmt::format("{}: '{}' is missing, and a reload takes no protection away by that; to do so write '{}: {}'",
                    after.name, change.key, change.key, find_config_key(change.key)->get(shown)));
  }
}

void check_config(const Config& config) {
  const KvCacheOptions& kv_cache = config.serve.engine.kv_cache;
  if (kv_cache.num_blocks != 0 && kv_cache.memory != 0) {
    throw StartupError("kv_cache.num_blocks and kv_cache.memory exclude each other: set one of them to 0");
  }
  if (!config.serve.model.hf.empty() && !config.serve.model.path.empty()) {
    throw StartupError("model.path (MODEL) and model.hf (--hf) exclude each other: give one of them");
  }
  if (config.serve.models.empty()) {
    if (config.serve.engine.speculation.method == SpeculationMethod::kDraftModel &&
        config.serve.model.draft_model.empty())
      throw StartupError("speculation.method is draft without speculation.draft_model: name a smaller model's file");
    return;
  }
  if (kv_cache.num_blocks != 0) {
    throw StartupError("kv_cache.num_blocks is for one model: with models, give kv_cache.memory or their kv_memory");
  }
  const Config defaults;
  for (const ConfigChange& change : compare_configs(defaults, config)) {
    if (!change.key.starts_with("model.") && change.key != "speculation.draft_model") continue;
    throw StartupError(fmt::format("{} and models exclude each other: write it into the model's entry", change.key));
  }
}

}  // namespace quire
