// LocalServer: `quire serve` as a child process for one terminal chat, on its own loopback port with a key made for it.
// The process ends with its owner, however that ends. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace quire::cli {

class LocalServer {
 public:
  // Starts the server with these arguments of `quire serve`. A connection waits until the model is loaded. Throws
  // StartupError if the process or socket cannot be made.
  explicit LocalServer(const std::vector<std::string>& arguments);
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  std::uint16_t port() const { return port_; }
  const std::string& api_key() const { return api_key_; }

  // Empty while the process lives; else its last logged line.
  std::string failure();

 private:
  pid_t process_ = -1;
  std::uint16_t port_ = 0;
  std::string api_key_;
  int log_ = -1;  // unnamed file with the process's log
};

}  // namespace quire::cli
