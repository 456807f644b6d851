// What an admin can make the server do. AdminTask: something that takes a while: a wait that costs no thread, then the
// rest. AdminActions: set before the first session; any thread.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "server/models/model_report.h"

namespace quire {

struct AdminTask {
  std::chrono::milliseconds wait{0};
  // Something that goes on elsewhere: called first, on the session's thread, with the callback that reports its end.
  std::function<void(std::function<void(std::optional<Error>)> told)> until = nullptr;
  std::function<Result<std::string>()> finish;  // the response's body, JSON
  int status = 200;
};

struct ModelOrder {
  enum class What { kLoad, kUnload, kSleep, kWake, kReplace };
  What what = What::kLoad;
  ModelEntry model;  // its name, and what a load or a replacement says beside
  bool in_place = false;
  std::optional<double> share;  // a replacement's: of the traffic, that the new file gets as a canary; absent: all
};

struct AdminActions {
  std::function<Result<std::string>()> reload;
  // Tells once it is done, or at once why not.
  std::function<void(const ModelOrder& order, std::function<void(std::optional<Error>)> told)> order;
  std::function<std::vector<ModelReport>()> models;
};

}  // namespace quire
