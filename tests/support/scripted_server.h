// ScriptedServer: an HTTP server on this machine that answers each connection's request by a script, good or hostile.
// Its thread calls the script and ends with the server.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace quire::test {

class ScriptedServer {
 public:
  // Sends; false: the client has left.
  using Send = std::function<bool(const std::string&)>;
  using Script = std::function<void(const std::string& request, const Send& send)>;

  explicit ScriptedServer(Script script) : script_(std::move(script)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_, 8) == 0);
    socklen_t size = sizeof address;
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~ScriptedServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::string name() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string url(const std::string& path = "") const { return "http://" + name() + path; }
  int num_requests() const { return num_requests_; }
  std::uint16_t port() const { return port_; }

 private:
  void run() {
    for (int client = ::accept(listener_, nullptr, nullptr); client >= 0;
         client = ::accept(listener_, nullptr, nullptr)) {
      std::string request;
      char buffer[4096];
      while (!is_whole(request)) {
        const ssize_t count = ::recv(client, buffer, sizeof buffer, 0);
        if (count <= 0) break;
        request.append(buffer, static_cast<std::size_t>(count));
      }
      ++num_requests_;
      script_(request, [client](const std::string& bytes) {
        return ::send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
      });
      ::close(client);
    }
  }
  static bool is_whole(const std::string& request) {
    const std::size_t end = request.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    const std::size_t length = request.find("Content-Length: ");
    return length > end || request.size() >= end + 4 + std::stoul(request.substr(length + 16));
  }

  Script script_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<int> num_requests_{0};
  std::thread thread_;
};

}  // namespace quire::test
