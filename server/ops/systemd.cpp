#include "server/ops/systemd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace quire {

namespace {

constexpr int kFirstHanded = 3;
constexpr int kMostHanded = 64;

std::optional<std::int64_t> number_from(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  std::int64_t number = 0;
  const char* end = text + std::strlen(text);
  const auto [last, error] = std::from_chars(text, end, number);
  return error == std::errc() && last == end ? std::optional(number) : std::nullopt;
}

}  // namespace

std::vector<HandedSocket> take_handed_sockets() {
  std::vector<HandedSocket> sockets;
  const auto pid = number_from("LISTEN_PID");
  const auto count = number_from("LISTEN_FDS");
  const char* names = std::getenv("LISTEN_FDNAMES");
  std::string_view rest = names == nullptr ? std::string_view() : std::string_view(names);
  if (pid == ::getpid() && count && *count > 0) {
    for (int i = 0; i < std::min<std::int64_t>(*count, kMostHanded); ++i) {
      const std::size_t colon = std::min(rest.find(':'), rest.size());
      sockets.push_back({kFirstHanded + i, std::string(rest.substr(0, colon))});
      rest.remove_prefix(std::min(colon + 1, rest.size()));
      ::fcntl(kFirstHanded + i, F_SETFD, FD_CLOEXEC);
    }
  }
  for (const char* variable : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"})
    ::unsetenv(variable);
  return sockets;
}

ServiceNotifier::ServiceNotifier() {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@') || path[1] == '\0') return;
  if (std::strlen(path) >= sizeof(sockaddr_un::sun_path)) return;
  address_ = path;
  if (address_.front() == '@') address_.front() = '\0';  // the abstract namespace
  socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const timeval patience{0, 500'000};
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

ServiceNotifier::~ServiceNotifier() {
  if (socket_ >= 0) ::close(socket_);
}

void ServiceNotifier::send(const std::string& message, int flags) {
  if (socket_ < 0) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, address_.data(), address_.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  // Ignores a supervisor that does not read.
  ::sendto(socket_, message.data(), message.size(), MSG_NOSIGNAL | flags, reinterpret_cast<const sockaddr*>(&address),
           size);
}

void ServiceNotifier::ready() {
  send("READY=1\nSTATUS=serving");
}

void ServiceNotifier::reloading() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000));
}

void ServiceNotifier::stopping() {
  send("STOPPING=1\nSTATUS=draining");
}

void ServiceNotifier::status(std::string_view text) {
  send(fmt::format("STATUS={}", text));
}

void ServiceNotifier::extend(std::chrono::milliseconds time) {
  send(fmt::format("EXTEND_TIMEOUT_USEC={}", std::chrono::microseconds(time).count()));
}

void ServiceNotifier::alive() {
  send("WATCHDOG=1", MSG_DONTWAIT);
}

std::optional<std::chrono::milliseconds> watchdog_period() {
  const auto period = number_from("WATCHDOG_USEC");
  const auto pid = number_from("WATCHDOG_PID");
  if (!period || *period < 1000 || (pid && *pid != ::getpid())) return std::nullopt;
  return std::chrono::milliseconds(*period / 1000);
}

namespace {
constexpr double kLatestStep = 10.0;        // factor on the prediction that means a hang
constexpr double kUnpredictedStep = 600.0;  // seconds: limit of the first step, which has no prediction
constexpr double kSlowDisk = 50e6;          // bytes per second
}  // namespace

bool Watchdog::is_alive(const EngineStats& stats, bool healthy, std::chrono::steady_clock::time_point now) {
  const bool got_on = !last_progress_ || stats.num_plans != num_plans_;
  const bool has_own_work = stats.num_running + stats.num_waiting > 0 && stats.awaits_others == 0;
  num_plans_ = stats.num_plans;
  if (got_on || !has_own_work) last_progress_ = now;
  const double step_s = stats.predicted_step_s > 0.0 ? kLatestStep * stats.predicted_step_s : kUnpredictedStep;
  const std::chrono::duration<double> silent = now - *last_progress_;
  return healthy && silent.count() <= step_s + static_cast<double>(weight_bytes_) / kSlowDisk;
}

}  // namespace quire
