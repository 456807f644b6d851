#include "server/ops/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

namespace quire {

namespace {

namespace fs = std::filesystem;

// Keeps a handler that a profiler or a sanitizer has set.
void ignore_where_deadly(int number) {
  struct sigaction now {};
  if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(number, SIG_IGN);
}

constexpr std::string_view kListening = "0A";  // TCP_LISTEN, as proc_net_tcp writes it

// Adds "socket:[INODE]" for each socket of the table that listens on the port. A row: number, local address:port in
// hexadecimal, remote one, state, queues, timer, retransmits, user, timeout, inode.
void add_sockets(const char* table, std::uint16_t port, std::set<std::string>& sockets) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // the head
  while (std::getline(file, line)) {
    std::istringstream row(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    row >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
    if (state == kListening && local.ends_with(fmt::format(":{:04X}", port))) sockets.insert("socket:[" + inode + "]");
  }
}

bool holds_any(const fs::path& process, const std::set<std::string>& sockets) {
  std::error_code ignored;
  for (fs::directory_iterator each(process / "fd", ignored), end; !ignored && each != end; each.increment(ignored)) {
    std::error_code unreadable;
    if (sockets.contains(fs::read_symlink(each->path(), unreadable).string())) return true;
  }
  return false;
}

}  // namespace

void ignore_deadly_signals() {
  // EPIPE and EFBIG report the same to the request concerned.
  for (const int number : {SIGPIPE, SIGXFSZ})
    ignore_where_deadly(number);
  // A log rotation, a profiler or a process manager may send these by mistake: they are meant for another server.
  for (const int number : {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT})
    ignore_where_deadly(number);
  // SIGTTOU would stop a background daemon whose terminal is set to `tostop`.
  ignore_where_deadly(SIGTTOU);
}

std::string process_listening_on(std::uint16_t port) {
  std::set<std::string> sockets;
  add_sockets("/proc/net/tcp", port, sockets);
  add_sockets("/proc/net/tcp6", port, sockets);
  if (sockets.empty()) return {};
  std::error_code ignored;
  for (fs::directory_iterator each("/proc", ignored), end; !ignored && each != end; each.increment(ignored)) {
    const std::string id = each->path().filename().string();
    const bool is_process = std::all_of(id.begin(), id.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!is_process || !holds_any(each->path(), sockets)) continue;
    std::string name;
    std::ifstream(each->path() / "comm") >> name;
    return fmt::format("process {} ({})", id, name);
  }
  return {};
}

}  // namespace quire
