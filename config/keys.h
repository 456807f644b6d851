// The table of configuration keys: path, type, range, help, and the field of Config that each sets. Files, flags,
// printing and checking in this folder are all driven by it. Immutable; any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/config_value.h"
#include "server/modules/modules.h"

namespace quire {

struct ConfigKey {
  std::string path;                // "scheduler.max_num_seqs"
  std::string help;                // a sentence or two, no full stop at the end
  std::vector<std::string> flags;  // short flags besides --scheduler.max-num-seqs: "--max-num-seqs"
  std::string accepts;             // "an integer from 1 to 65536": completes "must be ..."
  bool is_list = false;            // takes several values
  // Sets the field; returns "", or "must be ..." and changes nothing.
  std::function<std::string(Config&, const ConfigValue&)> set;
  std::function<std::string(Config&)> get;  // the value as YAML
  bool is_live = false;                     // a reload can change it
  bool is_secret = false;                   // its value is never logged
  Module module = Module::kCore;            // the module of the build that it configures
};

struct ConfigSection {
  std::string_view path;  // "backend.cpu"
  std::string_view help;
};

const std::vector<ConfigKey>& config_keys();  // grouped by section, in the shipped file's order
// Keys of modules that the build leaves out: refused with what they need.
const std::vector<ConfigKey>& left_out_config_keys();
const std::vector<ConfigSection>& config_sections();
Module module_of_key(std::string_view path);
// Returns whether the name is the path, or a section, with a dot at its end, that holds it.
bool covers_key(std::string_view name, std::string_view path);
const ConfigKey* find_config_key(std::string_view path);           // null: unknown, or left out
const ConfigKey* find_left_out_config_key(std::string_view path);  // null: unknown, or in the build

// Groups of keys with sources of their own; keys.cpp puts them into the table.
std::vector<ConfigKey> backend_keys();  // backend.*
std::vector<ConfigKey> model_keys();    // model.*
std::vector<ConfigKey> model_file_keys();
std::vector<ConfigKey> models_keys();  // models, which has no section
std::vector<ConfigKey> pull_keys();    // server.pull.*
std::vector<ConfigKey> fleet_keys();   // kv_cache.shared.*, kv_cache.events.*
std::vector<ConfigKey> quota_keys();   // shared_quotas.*
std::vector<ConfigKey> media_keys();   // media.*, without media.pdf.*
std::vector<ConfigKey> pdf_keys();     // media.pdf.*
std::vector<ConfigKey> batch_keys();   // batches.*

}  // namespace quire
