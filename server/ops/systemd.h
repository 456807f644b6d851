// What systemd and its like tell a service by its environment, and what it tells them (sd_notify(3), sd_listen_fds(3)):
// ServiceNotifier sends one line per change of state; Watchdog decides whether the daemon may say that it is alive.
// ServiceNotifier: any thread. Watchdog: one thread at a time.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/engine_stats.h"

namespace quire {

// One listening socket that was open before the process began.
struct HandedSocket {
  int descriptor = -1;
  std::string name;  // FileDescriptorName= of the socket unit; "admin" makes it the admin listener
};

// The sockets handed to this process; none where there are none. Forgets the variables, so that no child takes them for
// its own. Once, before any thread starts.
std::vector<HandedSocket> take_handed_sockets();

class ServiceNotifier {
 public:
  // Reads NOTIFY_SOCKET; without it every call does nothing.
  ServiceNotifier();
  ~ServiceNotifier();
  ServiceNotifier(const ServiceNotifier&) = delete;
  ServiceNotifier& operator=(const ServiceNotifier&) = delete;

  void ready();
  void reloading();
  void stopping();
  void status(std::string_view text);
  // Asks for this much more time before a slow start or stop is taken for a hang.
  void extend(std::chrono::milliseconds time);
  void alive();

 private:
  // A supervisor that does not read is waited for a moment, unless the flags say otherwise.
  void send(const std::string& message, int flags = 0);

  int socket_ = -1;
  std::string address_;
};

// How often the supervisor wants a sign of life (WATCHDOG_USEC, where WATCHDOG_PID is this process).
std::optional<std::chrono::milliseconds> watchdog_period();

// Is one engine getting anywhere? False while it has work of its own and has taken no step for several times what the
// step was predicted to take, and the time in which weights that were mapped are read from a slow disk again; and once
// its device failed: a restart is the only cure. What waits for another engine's step or for the disk is alive.
class Watchdog {
 public:
  explicit Watchdog(std::uint64_t weight_bytes = 0) : weight_bytes_(weight_bytes) {}
  bool is_alive(const EngineStats& stats, bool healthy,
                std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

 private:
  std::uint64_t weight_bytes_;
  std::uint64_t num_plans_ = 0;
  std::optional<std::chrono::steady_clock::time_point> last_progress_;
};

}  // namespace quire
