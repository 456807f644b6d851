#include "server/cli/run/local_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>

#include "core/base/message_text.h"
#include "core/base/result.h"

namespace quire::cli {

namespace {

constexpr int kHandedDescriptor = 3;  // sd_listen_fds(3)
constexpr const char* kKeyVariable = "QUIRE_RUN_KEY";

[[noreturn]] void refuse(const char* what) {
  throw StartupError(fmt::format("run: cannot {}", what));
}

std::string random_key() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) refuse("draw a random key");
  return hex_digits(bytes);
}

// A listening socket on a free port of this machine.
int listen_locally(std::uint16_t& port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (socket < 0 || ::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(socket, 16) != 0 || ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    refuse("listen on a local port");
  }
  port = ntohs(address.sin_port);
  return socket;
}

// Runs in the child, which becomes the server. Ctrl-C in the terminal is meant for the chat, so the child gets a
// process group of its own.
[[noreturn]] void become_server(int socket, int log, const std::string& key, std::vector<std::string> arguments) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setenv(kKeyVariable, key.c_str(), 1);
  ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
  ::setenv("LISTEN_FDS", "1", 1);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(log, STDERR_FILENO);
  // dup2 onto the same number would leave FD_CLOEXEC set, and exec would close the socket.
  if (socket == kHandedDescriptor) {
    ::fcntl(socket, F_SETFD, 0);
  } else {
    ::dup2(socket, kHandedDescriptor);
  }
  std::vector<char*> words;
  for (std::string& argument : arguments)
    words.push_back(argument.data());
  words.push_back(nullptr);
  ::execv("/proc/self/exe", words.data());
  ::_exit(127);
}

}  // namespace

LocalServer::LocalServer(const std::vector<std::string>& arguments) : api_key_(random_key()) {
  const int socket = listen_locally(port_);
  log_ = ::memfd_create("quire-run-log", MFD_CLOEXEC);
  std::vector<std::string> words = {"quire", "serve"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.insert(words.end(), {"--security.keys", fmt::format("name=run,env={}", kKeyVariable), "--log.access", "off"});
  process_ = ::fork();
  if (process_ == 0) become_server(socket, log_, api_key_, std::move(words));
  ::close(socket);
  if (process_ < 0) refuse("start a process");
}

LocalServer::~LocalServer() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);  // it has nothing to save
    ::waitpid(process_, nullptr, 0);
  }
  if (log_ >= 0) ::close(log_);
}

std::string LocalServer::failure() {
  if (process_ > 0 && ::waitpid(process_, nullptr, WNOHANG) == 0) return {};
  process_ = -1;
  std::string text(std::size_t{1} << 16, '\0');
  const ssize_t size = ::pread(log_, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  while (text.ends_with('\n'))
    text.pop_back();
  const std::string line = text.substr(text.rfind('\n') + 1);
  return line.empty() ? "the server ended without a message" : line;
}

}  // namespace quire::cli
