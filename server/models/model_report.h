// ModelReport: a model's state, for an admin. Value type; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>

#include "server/api/common/model_table.h"
#include "server/models/model_spec.h"

namespace quire {

struct ModelReport {
  TableEntry entry;
  std::filesystem::path path;
  std::vector<AdapterPath> adapters;
  std::uint64_t memory = 0;  // promised bytes while it is loaded
  std::chrono::milliseconds sleep_after{0};
  bool replacing = false;
  bool is_configured = true;
};

}  // namespace quire
