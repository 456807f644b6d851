#include "tests/bench/stream_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace quire::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kEnd = "[DONE]";
constexpr std::size_t kMostKept = 64;

struct Stream {
  int socket = -1;
  std::string kept;
};

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Counts the events in `text`; returns how many bytes at its end could be the beginning of another.
std::size_t count_events(std::string_view text, std::string_view before, StreamFigures& figures) {
  const std::int32_t now = stamp_now();
  while (true) {
    const void* found = ::memmem(text.data(), text.size(), before.data(), before.size());
    if (found == nullptr) return std::min(text.size(), before.size() - 1);
    const auto at = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
    if (text.size() < at + before.size() + kStampDigits) return text.size() - at;
    std::int32_t stamp = 0;
    bool numeric = true;
    for (int i = 0; i < kStampDigits; ++i) {
      const char digit = text[at + before.size() + static_cast<std::size_t>(i)];
      numeric = numeric && digit >= '0' && digit <= '9';
      stamp = stamp * 10 + (digit - '0');
    }
    if (numeric) {  // the chunk that opens a stream has no text
      const auto delay = static_cast<std::size_t>((now - stamp + kNumStamps) % kNumStamps);
      ++figures.by_delay[delay];
      ++figures.num_events;
    }
    text.remove_prefix(at + before.size());
  }
}

// False at the stream's end.
bool read_stream(Stream& stream, std::string_view before, StreamFigures& figures) {
  static std::array<char, 65536 + kMostKept> buffer;
  std::memcpy(buffer.data(), stream.kept.data(), stream.kept.size());
  const ssize_t count = ::recv(stream.socket, buffer.data() + stream.kept.size(), 65536, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (count <= 0) return false;
  ++figures.num_reads;
  figures.num_bytes += count;
  const std::string_view text(buffer.data(), stream.kept.size() + static_cast<std::size_t>(count));
  const std::size_t left = count_events(text, before, figures);
  stream.kept.assign(text.substr(text.size() - left));
  if (text.find(kEnd, text.size() - std::min<std::size_t>(text.size(), 64)) == std::string_view::npos) return true;
  ++figures.num_ended;
  return false;
}

}  // namespace

std::int32_t stamp_now() {
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
  return static_cast<std::int32_t>(now / 100 % kNumStamps);
}

double StreamFigures::delay_ms(double percent) const {
  auto left = static_cast<std::int64_t>(percent / 100.0 * static_cast<double>(num_events));
  for (std::size_t i = 0; i < by_delay.size(); ++i) {
    left -= by_delay[i];
    if (left < 0) return 0.1 * static_cast<double>(i + 1);
  }
  return 0.1 * kNumStamps;
}

int connect_to(std::uint16_t port) {
  const int made = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (made < 0 || ::connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    std::perror("connect");
    std::exit(1);
  }
  const int on = 1;
  ::setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return made;
}

void send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

StreamFigures read_streams(std::uint16_t port, int count, const std::string& request, std::string_view before_text) {
  StreamFigures figures;
  figures.by_delay.assign(kNumStamps, 0);
  std::vector<Stream> streams(static_cast<std::size_t>(count));
  const int poll = ::epoll_create1(0);
  for (std::size_t i = 0; i < streams.size(); ++i) {
    streams[i].socket = connect_to(port);
    send_all(streams[i].socket, request);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = i;
    ::epoll_ctl(poll, EPOLL_CTL_ADD, streams[i].socket, &event);
  }
  std::array<epoll_event, 1024> ready;
  Clock::time_point first{};
  Clock::time_point last{};
  for (int open = count; open > 0;) {
    const int num_ready = ::epoll_wait(poll, ready.data(), static_cast<int>(ready.size()), -1);
    const std::int64_t before = figures.num_events;
    for (int i = 0; i < num_ready; ++i) {
      Stream& stream = streams[ready[static_cast<std::size_t>(i)].data.u64];
      if (read_stream(stream, before_text, figures)) continue;
      ::close(stream.socket);
      --open;
    }
    if (figures.num_events == before) continue;
    last = Clock::now();
    if (first == Clock::time_point{}) first = last;
  }
  ::close(poll);
  figures.seconds = std::chrono::duration<double>(last - first).count();
  figures.cpu_seconds = cpu_seconds();
  return figures;
}

}  // namespace quire::bench
