#include "server/wire/listener.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "core/base/result.h"
#include "server/ops/process.h"

namespace quire {

namespace asio = boost::asio;

namespace {

constexpr int kBacklog = 4096;

void check(const boost::system::error_code& error, const char* what, const std::string& where) {
  if (error) throw StartupError(fmt::format("cannot {} {}: {}", what, where, error.message()));
}

asio::ip::tcp::endpoint tcp_endpoint(const sockaddr* address, std::size_t size) {
  asio::ip::tcp::endpoint endpoint;
  if (size > endpoint.capacity()) return endpoint;
  std::copy_n(reinterpret_cast<const char*>(address), size, reinterpret_cast<char*>(endpoint.data()));
  endpoint.resize(size);
  return endpoint;
}

// Detects the socket of a killed process: connecting to it is refused.
bool is_abandoned(asio::io_context& context, const asio::local::stream_protocol::endpoint& endpoint) {
  asio::local::stream_protocol::socket probe(context);
  boost::system::error_code error;
  probe.connect(endpoint, error);
  return error == asio::error::connection_refused;
}

// Connecting to a regular file is refused too: only a socket may count as abandoned.
void refuse_other_files(const std::string& setting, const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || S_ISSOCK(status.st_mode)) return;
  throw StartupError(fmt::format(
      "{}: '{}' exists and is not a socket; it is left as it is: remove it or choose another path", setting, path));
}

void check_length(const std::string& setting, const std::string& path) {
  if (path.size() < sizeof(sockaddr_un::sun_path)) return;
  throw StartupError(fmt::format("{}: '{}' is longer than {} bytes", setting, path, sizeof(sockaddr_un::sun_path) - 1));
}

struct HostAndPort {
  std::string host;
  std::uint16_t port = 0;
};

HostAndPort parse_address(const std::string& setting, const std::string& where) {
  const std::size_t colon = where.rfind(':');
  const std::string digits = colon == std::string::npos ? "" : where.substr(colon + 1);
  HostAndPort address;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
  if (digits.empty() || failure != std::errc() || end != digits.data() + digits.size()) {
    throw StartupError(fmt::format("{}: '{}' is neither ADDRESS:PORT nor a path that begins with '/'", setting, where));
  }
  std::string& host = address.host = where.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return address;
}

std::string describe_port_in_use(const std::string& where, std::uint16_t port) {
  const std::string owner = process_listening_on(port);
  return fmt::format(
      "cannot listen on {}: the port is in use by {}; end that, or choose another with --port (0: any free)", where,
      owner.empty() ? "another user's process" : owner);
}

}  // namespace

std::unique_ptr<Listener> Listener::bind_tcp(asio::io_context& context, const std::string& host, std::uint16_t port,
                                             boost::system::error_code& error) {
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) throw StartupError(fmt::format("server.host: '{}' is not an IP address", host));
  const asio::ip::tcp::endpoint endpoint(address, port);
  std::unique_ptr<Listener> listener(new Listener(context));
  listener->acceptor_.open(asio::generic::stream_protocol(endpoint.protocol()), error);
  check(error, "open a socket for", fmt::format("{}:{}", host, port));
  listener->acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  listener->acceptor_.bind(endpoint, error);
  return listener;
}

std::unique_ptr<Listener> Listener::tcp(asio::io_context& context, const std::string& host, std::uint16_t port) {
  const std::string where = fmt::format("{}:{}", host, port);
  boost::system::error_code error;
  auto listener = bind_tcp(context, host, port, error);
  if (!error) listener->acceptor_.listen(kBacklog, error);
  if (error == asio::error::address_in_use) throw StartupError(describe_port_in_use(where, port));
  check(error, "listen on", where);
  listener->name_ = fmt::format("{}:{}", host, listener->port());
  return listener;
}

void Listener::check_tcp(const std::string& host, std::uint16_t port) {
  asio::io_context context;
  boost::system::error_code error;
  bind_tcp(context, host, port, error);
  if (error != asio::error::address_in_use) check(error, "listen on", fmt::format("{}:{}", host, port));
}

std::unique_ptr<Listener> Listener::unix_path(asio::io_context& context, const std::string& setting,
                                              const std::string& path, const std::string& mode) {
  check_length(setting, path);
  boost::system::error_code error;
  const asio::local::stream_protocol::endpoint endpoint(path);
  std::unique_ptr<Listener> listener(new Listener(context));
  listener->acceptor_.open(asio::generic::stream_protocol(endpoint.protocol()), error);
  check(error, "open a socket for", path);
  listener->acceptor_.bind(endpoint, error);
  if (error == asio::error::address_in_use) {
    refuse_other_files(setting, path);
    if (!is_abandoned(context, endpoint))
      throw StartupError(
          fmt::format("{}: another process listens on '{}': end it or choose another path", setting, path));
    ::unlink(path.c_str());
    listener->acceptor_.bind(endpoint, error);
  }
  check(error, "bind to", path);
  listener->path_ = path;
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) listener->inode_ = status.st_ino;
  unsigned permissions = 0;
  std::from_chars(mode.data(), mode.data() + mode.size(), permissions, 8);
  if (::chmod(path.c_str(), permissions) != 0) throw StartupError("cannot set the mode of " + path);
  listener->acceptor_.listen(kBacklog, error);
  check(error, "listen on", path);
  listener->name_ = path;
  listener->is_tcp_ = false;
  return listener;
}

void Listener::check_unix_path(const std::string& setting, const std::string& path) {
  check_length(setting, path);
  refuse_other_files(setting, path);
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return;
  throw StartupError(fmt::format("cannot bind to {}: {}", path, std::strerror(errno)));
}

std::unique_ptr<Listener> Listener::at(asio::io_context& context, const std::string& setting, const std::string& where,
                                       const std::string& mode) {
  if (where.starts_with('/')) return unix_path(context, setting, where, mode);
  const HostAndPort address = parse_address(setting, where);
  return tcp(context, address.host, address.port);
}

void Listener::check_at(const std::string& setting, const std::string& where) {
  if (where.starts_with('/')) return check_unix_path(setting, where);
  const HostAndPort address = parse_address(setting, where);
  check_tcp(address.host, address.port);
}

std::unique_ptr<Listener> Listener::adopt(asio::io_context& context, int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  int accepts = 0;
  socklen_t accepts_size = sizeof accepts;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &accepts_size) != 0 || accepts == 0) {
    throw StartupError(fmt::format("descriptor {} that was handed over is not a listening socket", descriptor));
  }
  std::unique_ptr<Listener> listener(new Listener(context));
  boost::system::error_code error;
  listener->acceptor_.assign(asio::generic::stream_protocol(address.ss_family, 0), descriptor, error);
  check(error, "take over", fmt::format("descriptor {}", descriptor));
  listener->is_adopted_ = true;
  listener->is_tcp_ = address.ss_family == AF_INET || address.ss_family == AF_INET6;
  listener->name_ = fmt::format("descriptor {}", descriptor);
  if (listener->is_tcp_) {
    const auto endpoint = tcp_endpoint(reinterpret_cast<const sockaddr*>(&address), size);
    listener->name_ = fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
  }
  return listener;
}

std::uint16_t Listener::port() const {
  boost::system::error_code error;
  const auto local = acceptor_.local_endpoint(error);
  if (error || !is_tcp_) return 0;
  return tcp_endpoint(reinterpret_cast<const sockaddr*>(local.data()), local.size()).port();
}

void Listener::close() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  struct stat status {};
  const bool is_own = !path_.empty() && ::lstat(path_.c_str(), &status) == 0 && status.st_ino == inode_;
  if (is_own) ::unlink(path_.c_str());
  path_.clear();
}

std::string peer_address(const Listener::Socket& socket) {
  boost::system::error_code error;
  const auto remote = socket.remote_endpoint(error);
  if (error) return "unknown";
  const int family = remote.protocol().family();
  if (family != AF_INET && family != AF_INET6) return kLocalPeer;
  return tcp_endpoint(reinterpret_cast<const sockaddr*>(remote.data()), remote.size()).address().to_string();
}

}  // namespace quire
