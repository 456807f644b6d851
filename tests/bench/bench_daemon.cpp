// Measures the whole daemon: bench_daemon idle BINARY MODEL [CONNECTIONS] | ready BINARY MODEL [FLAGS...].
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/bench/engine_bench.h"
#include "tests/bench/stream_client.h"

namespace {

using namespace quire;
using namespace quire::bench;

constexpr std::string_view kAsk = "GET /readyz HTTP/1.1\r\nHost: bench\r\n\r\n";

std::uint16_t free_port() {
  const int probe = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(probe, reinterpret_cast<const sockaddr*>(&address), size) != 0) std::exit(1);
  ::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(probe);
  return ntohs(address.sin_port);
}

// Reads one whole response of Content-Length; returns its status, 0 if the connection ended.
int read_status(int socket) {
  std::string text;
  std::array<char, 4096> buffer;
  while (true) {
    const std::size_t head = text.find("\r\n\r\n");
    const std::size_t length = text.find("Content-Length: ");
    if (head != std::string::npos && length < head &&
        text.size() >= head + 4 + std::stoul(text.substr(length + 16, 12))) {
      return std::stoi(text.substr(9, 3));
    }
    const ssize_t count = ::read(socket, buffer.data(), buffer.size());
    if (count <= 0) return 0;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

class Daemon {
 public:
  Daemon(const std::string& binary, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {binary, "serve"});
    arguments.insert(arguments.end(), {"--port", std::to_string(port_), "--log-level", "warn"});
    std::vector<char*> raw;
    for (std::string& argument : arguments)
      raw.push_back(argument.data());
    raw.push_back(nullptr);
    began_ = Clock::now();
    child_ = ::fork();
    if (child_ == 0) {
      ::execv(binary.c_str(), raw.data());
      ::_exit(127);
    }
  }
  ~Daemon() {
    ::kill(child_, SIGTERM);
    ::waitpid(child_, nullptr, 0);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Polls every millisecond; returns the seconds from exec to the first 200.
  double wait_ready() const {
    while (true) {
      if (::waitpid(child_, nullptr, WNOHANG) != 0) std::exit(1);
      const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port_);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      int status = 0;
      if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
        send_all(socket, kAsk);
        status = read_status(socket);
      }
      ::close(socket);
      if (status == 200) return seconds_between(began_, Clock::now());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // Reads a field such as "VmRSS:" in MiB.
  double memory_mib(const std::string& name) const {
    std::ifstream file("/proc/" + std::to_string(child_) + "/status");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(name)) return std::stod(line.substr(name.size())) / 1024.0;
    }
    return 0.0;
  }
  std::uint16_t port() const { return port_; }

 private:
  std::uint16_t port_ = free_port();
  pid_t child_ = -1;
  Clock::time_point began_;
};

// A short completion of the demo model.
std::string completion_request() {
  const std::string body = R"({"model":"quire-demo","prompt":"Once","max_tokens":1})";
  return "POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

// Opens connections that complete one request each and then wait for the next.
void measure_idle(const std::string& binary, const std::string& model, int count) {
  const rlimit limit{static_cast<rlim_t>(count) + 1000, static_cast<rlim_t>(count) + 1000};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) std::perror("RLIMIT_NOFILE");
  const Daemon daemon(binary, {"--model", model, "--server.timeout.idle", "10m"});
  daemon.wait_ready();
  const double before = daemon.memory_mib("VmRSS:");
  const double own_before = daemon.memory_mib("RssAnon:");
  std::vector<int> sockets;
  const std::string request = completion_request();
  for (int i = 0; i < count; ++i) {
    sockets.push_back(connect_to(daemon.port()));
    send_all(sockets.back(), request);
    if (read_status(sockets.back()) != 200) std::exit(1);
  }
  const double after = daemon.memory_mib("VmRSS:");
  std::printf(
      "idle: %d keep-alive connections: %.1f MiB resident (%.1f without file pages), %.1f MiB before: %.2f KiB "
      "for each\n",
      count, after, daemon.memory_mib("RssAnon:"), before,
      1024.0 * (daemon.memory_mib("RssAnon:") - own_before) / count);
  send_all(sockets.front(), kAsk);
  if (read_status(sockets.front()) != 200) std::exit(1);
  for (const int socket : sockets)
    ::close(socket);
}

void measure_ready(const std::string& binary, std::vector<std::string> flags) {
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const Daemon daemon(binary, flags);
    seconds.push_back(daemon.wait_ready());
    std::printf("ready: after %.2f s, peak %.0f MiB resident\n", seconds.back(), daemon.memory_mib("VmHWM:"));
  }
  std::printf("ready: median %.2f s of %zu starts\n", percentile(seconds, 50), seconds.size());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() >= 3 && arguments[0] == "idle") {
    measure_idle(arguments[1], arguments[2], arguments.size() > 3 ? std::stoi(arguments[3]) : 10'000);
  } else if (arguments.size() >= 3 && arguments[0] == "ready") {
    std::vector<std::string> flags{"--model"};
    flags.insert(flags.end(), arguments.begin() + 2, arguments.end());
    measure_ready(arguments[1], flags);
  } else {
    std::fprintf(stderr, "bench_daemon idle BINARY MODEL [CONNECTIONS] | ready BINARY MODEL [FLAGS...]\n");
    return 2;
  }
}
