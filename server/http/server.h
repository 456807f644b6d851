// Server: listens, runs the io and text threads, and brings everything to an orderly end. Any thread.
// Life: start() listens and answers health checks at once; serve() gives it models; stop() drains; wait() returns when
// it is over.
#pragma once

#include <memory>

#include "server/http/server_options.h"
#include "server/http/server_state.h"

namespace quire {

class Server {
 public:
  explicit Server(const ServerOptions& options);
  ~Server();  // cuts what is left
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Throws StartupError where the address cannot be had.
  void start();
  // From SIGTERM and SIGINT on: the first drains, the second cuts at once. Before start(), so that no signal is missed.
  void handle_signals();
  std::uint16_t port() const;
  void serve(std::shared_ptr<const Service> service);

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
