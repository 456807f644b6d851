// What an admin can make the server do. AdminTask: something that takes a while: a wait that costs no thread, then the
// rest. AdminActions: set before the first session; any thread.
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

// A download that is answered as it goes on.
struct PullTask {
  enum class Form { kWhole, kEvents, kLines };  // one object at the end, server-sent events, Ollama's lines
  std::shared_ptr<hub::PullLease> lease;
  Form form = Form::kWhole;
  bool is_ollama = false;
  std::optional<ModelEntry> serves;  // taken into service at the end, under this name; its path is the download's
};

struct AdminTask {
  std::chrono::milliseconds wait{0};
  // Something that goes on elsewhere: called first, on the session's thread, with the callback that reports its end.
  std::function<void(std::function<void(std::optional<Error>)> told)> until = nullptr;
  std::function<Result<std::string>()> finish = nullptr;  // the response's body, JSON
  int status = 200;
  std::optional<PullTask> pull = std::nullopt;  // the response instead of all that
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
  hub::PullRunner* pulls = nullptr;  // null: there are none
};

}  // namespace quire
