// Reloader: applies a changed configuration to the running server: all of it, or nothing. Any thread; one reload at a
// time. ConfigSource: reads the configuration for the server, which itself knows no files.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/base/result.h"
#include "server/http/server.h"
#include "server/models/live_models.h"
#include "server/ops/systemd.h"
#include "server/serve.h"

namespace quire {

class Reloader {
 public:
  // `notifier` outlives this.
  Reloader(ServiceNotifier& notifier, ConfigSource source) : notifier_(notifier), source_(std::move(source)) {}

  // From now on there is something to reload, until the server has ended.
  void attach(Server& server, LiveModels& models);
  // Reads, checks, applies and logs the difference. The outcome as JSON; an error leaves everything as it was.
  Result<std::string> reload();

 private:
  Result<std::string> apply();

  ServiceNotifier& notifier_;
  ConfigSource source_;
  std::mutex mutex_;
  Server* server_ = nullptr;  // null: still loading
  LiveModels* models_ = nullptr;
};

}  // namespace quire
