// Messages between systemd, or another supervisor with its protocol, and this service (sd_notify(3), sd_listen_fds(3)).
// ServiceNotifier sends one line per change of state; Watchdog decides whether the daemon may report that it is alive.
// ServiceNotifier: any thread. Watchdog: one thread at a time.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/figures/engine_stats.h"

namespace quire {

// A listening socket opened before the process began.
struct HandedSocket {
  int descriptor = -1;
  std::string name;  // FileDescriptorName= of the socket unit; "admin" makes it the admin listener
};

// The sockets handed to this process; may be empty. Removes the variables, so that no child process uses them. To be
// called once, before any thread starts.
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
  // Waits a moment for a supervisor that does not read, unless the flags say otherwise.
  void send(const std::string& message, int flags = 0);

  int socket_ = -1;
  std::string address_;
};

// Interval at which the supervisor expects a sign of life (WATCHDOG_USEC, if WATCHDOG_PID is this process).
std::optional<std::chrono::milliseconds> watchdog_period();

// Checks that one engine makes progress. It fails while the engine has work but took no step for several times the
// predicted time plus the time to read mapped weights from a slow disk again, and once its device failed: only a
// restart helps. An engine that waits for another one's step or for the disk counts as alive.
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
