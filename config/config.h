// Config: all of an operator's settings, as the option structs that live beside the classes they configure. Value
// types; one thread at a time (main, before anything runs). Invariant: a Config made by this folder holds no value
// outside the range of its key.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/log.h"
#include "server/serve.h"

namespace quire {

// Low enough for a stream to read smoothly; a 1B model on two cores still reads prompts at its full rate.
inline constexpr double kDefaultTargetItlMs = 150.0;

// The file that a Config was read from.
struct ConfigFile {
  std::string name;
  std::set<std::string> keys;  // keys that the file sets
  bool ends_line = true;       // its last line has a line break
};

struct Config {
  Config() {
    serve.engine.scheduler.target_itl_ms = kDefaultTargetItlMs;
    serve.engine.scheduler.max_step_time_ms = SchedulerOptions::kAutoStepTime;
  }

  ServeOptions serve;
  LogOptions log;
  ConfigFile file;  // empty name: no file was read
};

// Each throws StartupError with one line: the place (file and line, or flag), the fault, and the nearest valid name.

// Overrides keys by the file's.
void load_config_file(Config& config, const std::filesystem::path& path);
// Reads the same from text; `name` stands for the file in messages.
void load_config_text(Config& config, std::string_view text, const std::string& name);
// Overrides one key, as a flag does. `flag` stands for the place in messages.
void set_config_value(Config& config, std::string_view key, const std::vector<std::string>& values,
                      const std::string& flag);
// Checks values of different keys that exclude each other.
void check_config(const Config& config);

// Checks the configuration of a reload. Throws StartupError if its file seems incomplete, as while it is being written:
// it is empty, ends within a line, or lacks a key of `security` or `server.tls` that the current one sets.
void check_successor(const Config& current, const Config& next);

// Lists the keys whose values differ in `next`. Secrets are reported as changed, without their values.
std::vector<ConfigChange> compare_configs(const Config& current, const Config& next);

// The whole configuration as a commented file that load_config_text reads back. For a default Config it is the shipped
// file, config/quire.yaml.
std::string render_config(const Config& config);

// The page deploy/docs/configuration.md: every key with its default, its values and its flags.
std::string render_reference();

}  // namespace quire
