// LocalServer: `quire serve` as a child process for one terminal chat, on a loopback port of its own that needs a key
// made for it. Ends with its owner, however that ends. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace quire::cli {

class LocalServer {
 public:
  // Starts the server with these arguments of `quire serve`. It loads its model meanwhile; a connection waits until it
  // has. Throws StartupError where no process or socket can be made.
  explicit LocalServer(const std::vector<std::string>& arguments);
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  std::uint16_t port() const { return port_; }
  const std::string& api_key() const { return api_key_; }

  // Empty while the process lives; else the last line that it logged.
  std::string failure();

 private:
  pid_t process_ = -1;
  std::uint16_t port_ = 0;
  std::string api_key_;
  int log_ = -1;  // unnamed file with the process's log
};

}  // namespace quire::cli
