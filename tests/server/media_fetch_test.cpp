#include "server/media/media_fetch.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "server/media/data_url.h"

namespace quire::test {
namespace {

// A server that answers each connection with what its script says, until the script ends or the client has left.
class HostileServer {
 public:
  // Sends; false: the client has left.
  using Send = std::function<bool(const std::string&)>;
  using Script = std::function<void(const std::string& request, const Send& send)>;

  explicit HostileServer(Script script) : script_(std::move(script)) {
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
  ~HostileServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  HostileServer(const HostileServer&) = delete;
  HostileServer& operator=(const HostileServer&) = delete;

  std::string name() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string url(const std::string& path = "/a.png") const { return "http://" + name() + path; }
  int num_requests() const { return num_requests_; }
  std::uint16_t port() const { return port_; }

 private:
  void run() {
    for (int client = ::accept(listener_, nullptr, nullptr); client >= 0;
         client = ::accept(listener_, nullptr, nullptr)) {
      std::string request;
      char buffer[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
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

  Script script_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<int> num_requests_{0};
  std::thread thread_;
};

HostileServer::Script says_bytes(const std::string& bytes) {
  return [bytes](const std::string&, const HostileServer::Send& send) { send(bytes); };
}

MediaOptions allowing(const std::string& host) {
  MediaOptions options;
  options.fetch = {host};
  options.max_file_bytes = 100'000;
  options.fetch_time = std::chrono::milliseconds(20'000);
  return options;
}

std::string code_of(const std::string& url, const MediaOptions& options) {
  const auto fetched = fetch_media(url, options, {});
  REQUIRE(!fetched);
  CHECK(fetched.error().kind == ErrorKind::kInvalidRequest);
  return fetched.error().code;
}

TEST_CASE("a listed host's file is fetched", "[media]") {
  const HostileServer server(says_bytes("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"));
  CHECK(fetch_media(server.url(), allowing(server.name()), {}).value() == "hello");
  CHECK(code_of(server.url(), MediaOptions()) == "image_url_not_allowed");
  CHECK(code_of(server.url(), allowing("127.0.0.1")) == "image_url_not_allowed");  // another port
  CHECK(code_of(server.url(), allowing("example.com")) == "image_url_not_allowed");
  CHECK(code_of("http://user@" + server.name() + "/", allowing(server.name())) == "image_url_not_allowed");
  CHECK(server.num_requests() == 1);
}

TEST_CASE("names that lead to internal addresses are not connected to", "[media]") {
  const HostileServer server(says_bytes("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"));
  const std::string name = "localhost:" + std::to_string(server.port());
  CHECK(code_of("http://" + name + "/", allowing(name)) == "image_url_failed");
  CHECK(server.num_requests() == 0);
  for (const char* address : {"127.0.0.1", "10.1.2.3", "172.31.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1",
                              "0.0.0.0", "224.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254",
                              "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "2001::1", "nonsense"})
    CHECK(is_internal_address(address));
  for (const char* address : {"93.184.216.34", "172.32.0.1", "2606:2800:220:1::1", "::ffff:93.184.216.34"})
    CHECK(!is_internal_address(address));
}

TEST_CASE("redirects are followed on the same server only", "[media]") {
  const HostileServer other(says_bytes("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret"));
  const auto script = [&other](const std::string& request, const HostileServer::Send& send) {
    if (request.starts_with("GET /far")) {
      send("HTTP/1.1 302 Found\r\nLocation: " + other.url() + "\r\nContent-Length: 0\r\n\r\n");
    } else if (request.starts_with("GET /near")) {
      send("HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n");
    } else if (request.starts_with("GET /there")) {
      send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere");
    } else {
      send("HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n");
    }
  };
  const HostileServer server(script);
  MediaOptions options = allowing(server.name());
  options.fetch.push_back(other.name());
  CHECK(fetch_media(server.url("/near"), options, {}).value() == "there");
  CHECK(code_of(server.url("/far"), options) == "image_url_failed");
  CHECK(other.num_requests() == 0);
  const int before = server.num_requests();
  CHECK(code_of(server.url("/again"), options) == "image_url_failed");
  CHECK(server.num_requests() - before <= 4);
}

TEST_CASE("what a server sends is bounded in bytes and time", "[media]") {
  const auto endless = [](const std::string&, const HostileServer::Send& send) {
    send("HTTP/1.1 200 OK\r\n\r\n");
    while (send(std::string(10'000, 'x'))) {
    }
  };
  const HostileServer body(endless);
  CHECK(code_of(body.url(), allowing(body.name())) == "image_url_failed");
  const HostileServer head([](const std::string&, const HostileServer::Send& send) {
    send("HTTP/1.1 200 OK\r\n");
    while (send("X-More: " + std::string(1000, 'x') + "\r\n")) {
    }
  });
  CHECK(code_of(head.url(), allowing(head.name())) == "image_url_failed");
  const HostileServer too_long(says_bytes("HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n"));
  CHECK(code_of(too_long.url(), allowing(too_long.name())) == "image_url_failed");
  const HostileServer too_short(says_bytes("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"));
  CHECK(code_of(too_short.url(), allowing(too_short.name())) == "image_url_failed");
  const HostileServer absent(says_bytes("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"));
  CHECK(code_of(absent.url(), allowing(absent.name())) == "image_url_failed");
  const HostileServer nonsense(says_bytes("SSH-2.0-OpenSSH\r\n"));
  CHECK(code_of(nonsense.url(), allowing(nonsense.name())) == "image_url_failed");
  // A byte now and then keeps no fetch alive.
  const HostileServer slow([](const std::string& request, const HostileServer::Send& send) {
    send("HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n" + request.substr(0, 1));
    while (send("x"))
      std::this_thread::yield();
  });
  MediaOptions hasty = allowing(slow.name());
  hasty.fetch_time = std::chrono::milliseconds(1);
  CHECK(code_of(slow.url(), hasty) == "image_url_failed");
}

TEST_CASE("base64 is read strictly, but for white space and missing padding", "[media]") {
  CHECK(decode_base64("aGVsbG8=", 100).value() == "hello");
  CHECK(decode_base64("aGVsbG8", 100).value() == "hello");
  CHECK(decode_base64(" aGVs\r\nbG8 = ", 100).value() == "hello");
  CHECK(decode_base64("-_-_", 100).value() == decode_base64("+/+/", 100).value());
  CHECK(decode_base64("", 100).value().empty());
  for (const char* wrong : {"a", "aGVsb", "aG=sbG8=", "aGVsbG8==", "aGVs=", "aGVs!G8=", "a===",
                            "aGk="
                            "="})
    CHECK(!decode_base64(wrong, 100));
  CHECK(decode_base64("aGVsbG8=", 5));
  CHECK(decode_base64("aGVsbG8=", 4).error().code == "image_too_large");
  CHECK(decode_data_url("data:image/png;base64,aGk=", 9).value().media_type == "image/png");
  CHECK(decode_data_url("data:,a%20b", 9).value().bytes == "a b");
  CHECK(decode_data_url("data:text/plain,%4", 9).error().code == "invalid_url");
}

}  // namespace
}  // namespace quire::test
