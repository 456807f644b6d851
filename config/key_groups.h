// Groups of configuration keys that have files of their own; keys.cpp puts them into the table. Any thread.
#pragma once

#include <vector>

#include "config/keys.h"

namespace quire {

std::vector<ConfigKey> backend_keys();  // backend.*
std::vector<ConfigKey> model_keys();    // model.*
std::vector<ConfigKey> model_file_keys();
std::vector<ConfigKey> models_keys();  // models, which has no section
std::vector<ConfigKey> pull_keys();    // server.pull.*
std::vector<ConfigKey> fleet_keys();   // kv_cache.shared.*, kv_cache.events.*
std::vector<ConfigKey> quota_keys();   // shared_quotas.*
std::vector<ConfigKey> media_keys();   // media.*, without media.pdf.*
std::vector<ConfigKey> pdf_keys();     // media.pdf.*

}  // namespace quire
