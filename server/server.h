// Server: listens, runs the io and text threads, and shuts them down in order. Any thread. Call start() first: it
// listens and answers health checks; serve() sets the models; stop() drains; wait() returns when the drain is over.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "server/ops/systemd.h"
#include "server/state/server_options.h"
#include "server/state/server_state.h"

namespace quire {

class Server {
 public:
  // Sockets from a supervisor replace the addresses in the options. Their connections are accepted only when a model is
  // ready: until then they wait in the backlog.
  explicit Server(const ServerOptions& options, std::vector<HandedSocket> handed = {});
  ~Server();  // cuts running requests
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Throws StartupError if the address cannot be bound.
  void start();
  // Handles SIGTERM and SIGINT: the first drains, the second cuts at once. SIGHUP calls `on_hangup` on the admin
  // thread. To be called before start(), so that no signal is missed.
  void handle_signals(std::function<void()> on_hangup = nullptr);
  // Called when a drain begins and when it is over, on an io thread. To be set before start().
  void on_drain(std::function<void()> begun, std::function<void()> over = nullptr);
  // Calls `callback` periodically on the first io thread until the end. One thread at a time.
  void repeat(std::chrono::milliseconds period, std::function<void()> callback);
  // The first TCP listener's port; 0 without one.
  std::uint16_t port() const;
  std::uint16_t admin_port() const;
  void serve(std::shared_ptr<const ModelTable> models);

  // Begins the drain; a second call cuts at once.
  void stop();
  bool stopping() const;
  // Blocks until the drain is over and all threads are joined. Returns the number of cut operations.
  std::size_t wait();

  ServerState& state();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
