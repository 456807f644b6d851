// Operations of an admin. AdminTask: a slow operation: a wait that blocks no thread, then the function that makes the
// response. AdminActions: the functions behind them, set before the first session; any thread.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "server/hub/pull_runner.h"
#include "server/models/model_report.h"

namespace quire {

// A download whose progress is the response.
struct PullTask {
  enum class Form { kWhole, kEvents, kLines };  // a final object, server-sent events, or Ollama's lines
  std::shared_ptr<hub::PullLease> lease;
  Form form = Form::kWhole;
  bool is_ollama = false;
  std::optional<ModelEntry> serves;  // added to the served models at the end, with the download's path
};

struct AdminTask {
  std::chrono::milliseconds wait{0};
  // Starts an operation on another thread: called first, on the session's thread, with the callback for its end.
  std::function<void(std::function<void(std::optional<Error>)> done)> until = nullptr;
  std::function<Result<std::string>()> finish = nullptr;  // the response's body
  int status = 200;
  const char* content_type = "application/json";
  std::optional<PullTask> pull = std::nullopt;  // if set, it makes the response instead
};

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
