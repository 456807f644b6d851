// Listener: one listening socket: a TCP address, a path in the file system, or a socket that a supervisor opened and
// handed over. One thread at a time (the io thread that accepts). A path is removed with its listener, unless the
// socket was handed over or another one took its place.
#pragma once

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>
#include <string>

namespace quire {

class Listener {
 public:
  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;
  using Socket = boost::asio::generic::stream_protocol::socket;

  // Each throws StartupError if the address cannot be bound.
  static std::unique_ptr<Listener> tcp(boost::asio::io_context& context, const std::string& host, std::uint16_t port);
  // Replaces a socket without a listener, but no other file. `mode`: octal digits. `setting`: the key that names the
  // path, for messages.
  static std::unique_ptr<Listener> unix_path(boost::asio::io_context& context, const std::string& setting,
                                             const std::string& path, const std::string& mode);
  // "ADDRESS:PORT" ("[::1]:9090") or a path that begins with '/'.
  static std::unique_ptr<Listener> at(boost::asio::io_context& context, const std::string& setting,
                                      const std::string& where, const std::string& mode);
  static std::unique_ptr<Listener> adopt(boost::asio::io_context& context, int descriptor);
  // Throws the same errors as tcp(), unix_path() and at(), without listening; an address that another process listens
  // on is no error.
  static void check_tcp(const std::string& host, std::uint16_t port);
  static void check_unix_path(const std::string& setting, const std::string& path);
  static void check_at(const std::string& setting, const std::string& where);
  ~Listener() { close(); }

  Acceptor& acceptor() { return acceptor_; }
  std::uint16_t port() const;                        // 0: not TCP
  const std::string& name() const { return name_; }  // "127.0.0.1:8080", "/run/quire.sock"
  bool is_tcp() const { return is_tcp_; }
  bool is_adopted() const { return is_adopted_; }
  // Stops accepting: new connections wait for the next process that holds the socket.
  void close();

  bool is_admin = false;

 private:
  explicit Listener(boost::asio::io_context& context) : acceptor_(context) {}
  // Binds without listening; `error`: why it could not be bound.
  static std::unique_ptr<Listener> bind_tcp(boost::asio::io_context& context, const std::string& host,
                                            std::uint16_t port, boost::system::error_code& error);
  Acceptor acceptor_;
  std::string name_;
  std::string path_;  // removed at the end, if it is still this file:
  std::uint64_t inode_ = 0;
  bool is_tcp_ = true;
  bool is_adopted_ = false;
};

// The client's address without its port; kLocalPeer for a Unix socket.
inline constexpr const char* kLocalPeer = "unix";
std::string peer_address(const Listener::Socket& socket);

}  // namespace quire
