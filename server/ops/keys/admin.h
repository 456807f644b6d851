// AdminActions: the operations of an admin on models and configuration, as functions set before the first session; any
// thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "server/models/model_report.h"

namespace quire {

namespace hub {
class PullRunner;
}

struct ModelOrder {
  enum class What { kLoad, kUnload, kSleep, kWake, kReplace };
  What what = What::kLoad;
  ModelEntry model;  // its name, and the options of a load or a replacement
  bool in_place = false;
  std::optional<double> share;  // canary share of a replacement; absent: replace it all
};

// An adapter of a model that serves, to be loaded or unloaded.
struct AdapterOrder {
  std::string model;  // empty: the first model
  AdapterPath adapter;
  bool in_place = false;
  bool unloads = false;  // needs only the name
};

struct AdminActions {
  // Calls `done` with the response's body once the order was applied or refused.
  std::function<void(std::function<void(Result<std::string>)> done)> reload;
  // Calls `done` when the operation ends, with the error if it failed.
  std::function<void(const ModelOrder& order, std::function<void(std::optional<Error>)> done)> order;
  std::function<void(const AdapterOrder& order, std::function<void(std::optional<Error>)> done)> order_adapter;
  std::function<std::vector<ModelReport>()> models;
  hub::PullRunner* pulls = nullptr;  // null: downloads are not available
};

}  // namespace quire
