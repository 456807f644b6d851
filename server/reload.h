// Reloader: applies a changed configuration to the running server: all of it, or nothing. Any thread. Files are read on
// the thread `reload`, one reload at a time, so that a mount that does not answer holds up neither /admin nor the end.
// ConfigSource: reads the configuration for the server, which itself knows no files.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "core/base/log.h"
#include "core/base/result.h"
#include "server/models/live_models.h"
#include "server/ops/systemd.h"
#include "server/serve.h"
#include "server/server.h"

namespace quire {

class Reloader {
 public:
  // Called once, on any thread, with the outcome as JSON; an error left everything as it was.
  using Done = std::function<void(Result<std::string>)>;

  // `notifier` outlives this.
  Reloader(ServiceNotifier& notifier, ConfigSource source);
  ~Reloader() { stop(); }
  Reloader(const Reloader&) = delete;
  Reloader& operator=(const Reloader&) = delete;

  // Accepts reloads from now on, until stop().
  void attach(Server& server, LiveModels& models);
  // Reads, checks, applies and logs the difference.
  void reload(Done done);
  // Refuses a reload whose files have not been read within the time limit; a later result is dropped.
  void give_up_late(std::chrono::steady_clock::time_point now);
  // For a drain: refuses reloads that have not been applied.
  void abandon();
  // Ends the thread. False if it hangs in a file: it is then detached and changes nothing any more. Idempotent.
  bool stop();

 private:
  struct State;

  std::shared_ptr<State> state_;  // the thread's too, which may outlive this
  std::thread thread_;
};

// Throws StartupError if clients would be less restricted than before and the configuration does not allow it.
void check_not_weaker(const ServerOptions& before, const ServerOptions& after);

}  // namespace quire
