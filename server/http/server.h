// Server: listens, runs the io and text threads, and brings everything to an orderly end. Any thread.
// Life: start() listens and answers health checks at once; serve() gives it models; stop() drains; wait() returns when
// it is over.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "server/http/server_options.h"
#include "server/http/server_state.h"
#include "server/ops/systemd.h"

namespace quire {

class Server {
 public:
  // Where sockets are handed over, they take the place of the addresses in the options, and are accepted from only once
  // there is a model: until then connections wait in their backlog.
  explicit Server(const ServerOptions& options, std::vector<HandedSocket> handed = {});
  ~Server();  // cuts running requests
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Throws StartupError where the address cannot be bound.
  void start();
  // From SIGTERM and SIGINT on: the first drains, the second cuts at once. SIGHUP calls `on_hangup` on the admin
  // thread. Before start(), so that no signal is missed.
  void handle_signals(std::function<void()> on_hangup = nullptr);
  // Called when a drain begins, on an io thread. Before start().
  void on_drain(std::function<void()> callback);
  // Calls this on the first io thread again and again until the end. From one thread at a time.
  void repeat(std::chrono::milliseconds period, std::function<void()> callback);
  // Of the first TCP listener; 0 where there is none.
  std::uint16_t port() const;
  std::uint16_t admin_port() const;
  void serve(std::shared_ptr<const ModelTable> models);

  // Begins the drain; a second call cuts at once.
  void stop();
  bool stopping() const;
  // Blocks until the drain is over and all threads are joined. Returns how many operations were cut.
  std::size_t wait();

  ServerState& state();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
