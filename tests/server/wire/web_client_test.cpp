#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <catch2/catch.hpp>
#include <thread>

#include "server/client/http_exchange.h"
#include "server/client/system_trust.h"
#include "tests/server/test_server.h"
#include "tests/server/wire/certificate.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

namespace {

constexpr std::chrono::milliseconds kUnhurried{60'000};

WebClient client_of(std::uint16_t port, bool secure = false, const ClientTrust& trust = {}) {
  return WebClient(HttpUrl{secure, "127.0.0.1", std::to_string(port), ""}, trust);
}

// Answers one request with these bytes and closes.
class Answers {
 public:
  explicit Answers(std::string reply)
      : acceptor_(context_, {boost::asio::ip::address_v4::loopback(), 0}),
        thread_([this, reply = std::move(reply)] { answer(reply); }) {}
  ~Answers() { thread_.join(); }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

 private:
  void answer(const std::string& reply) {
    boost::system::error_code error;
    boost::asio::ip::tcp::socket socket = acceptor_.accept(error);
    boost::asio::streambuf request;
    boost::asio::read_until(socket, request, "\r\n\r\n", error);
    boost::asio::write(socket, boost::asio::buffer(reply), error);
  }

  boost::asio::io_context context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::thread thread_;
};

struct Received {
  Result<int> status = 0;
  Result<std::string> body = std::string();
  int num_pieces = 0;
};

boost::asio::awaitable<void> receive(HttpExchange& exchange, const ClientRequest& request, Received& received) {
  received.status = co_await exchange.send(request, kUnhurried);
  bool more = received.status.has_value();
  while (more) {
    const auto piece = co_await exchange.read_some();
    if (!piece) received.body = tl::make_unexpected(piece.error());
    more = piece && !piece->empty();
    if (!more) break;
    *received.body += *piece;
    ++received.num_pieces;
  }
}

Received received_from(const WebClient& client, const ClientRequest& request) {
  boost::asio::io_context context;
  HttpExchange exchange(context.get_executor(), client);
  Received received;
  boost::asio::co_spawn(context, receive(exchange, request, received), boost::asio::detached);
  context.run();
  return received;
}

}  // namespace

TEST_CASE("a URL of http says where it points") {
  const auto url = parse_http_url("https://[::1]:8443/a?b=c");
  REQUIRE(url);
  CHECK(url->secure);
  CHECK(url->host == "::1");
  CHECK(url->port == "8443");
  CHECK(url->path == "/a?b=c");
  CHECK(url->authority() == "[::1]:8443");
  CHECK(parse_http_url("http://a.b")->authority() == "a.b:80");
  for (const char* bad : {"", "a", "a:80", "http:/a", "http//a", "http://", "http://a:b/", "http://a b/", "http://a/ b",
                          "http://a:1:2/", "http://[::1", "http://u:p@a/", "http://a/#b", "ws://a/", "http://a\r\n/"}) {
    INFO(bad);
    CHECK_FALSE(parse_http_url(bad));
  }
}

TEST_CASE("a redirect leads where its location points from the first URL") {
  const HttpUrl from = *parse_http_url("http://a.b:81/x/y?q=1");
  const auto to = [&](const std::string& location) {
    const auto url = redirected_url(from, location);
    return url ? url->authority() + url->path : std::string();
  };
  CHECK(to("z") == "a.b:81/x/z");
  CHECK(to("./z?r=../s") == "a.b:81/x/z?r=../s");
  CHECK(to("../z/./w") == "a.b:81/z/w");
  CHECK(to("../../../z") == "a.b:81/z");
  CHECK(to("/v/w/../z/..") == "a.b:81/v/");
  CHECK(to("?r=2") == "a.b:81/x/y?r=2");
  CHECK(to("//c.d/e") == "c.d:80/e");
  CHECK(to("HTTPS://c.d/e#f") == "c.d:443/e");
  for (const char* nowhere : {"", "#f", "file:///etc/passwd", "ws://c.d/"})
    CHECK(to(nowhere).empty());
}

TEST_CASE("a client gets a status, plain or over TLS from a server that it believes") {
  TestServer plain;
  CHECK(client_of(plain.port()).ask({"GET", "/livez", {}, {}}, kUnhurried).value() == 200);
  CHECK(client_of(plain.port()).ask({"GET", "/none", {}, {}}, kUnhurried).value() == 404);
  ServerOptions options = test_options();
  options.tls.certificate = certificate().certificate;
  options.tls.key = certificate().key;
  TestServer secure({}, options);
  const auto ask = [&](const ClientTrust& trust) {
    return client_of(secure.port(), true, trust).ask({"GET", "/livez", {}, {}}, kUnhurried);
  };
  CHECK(ask({.ca = certificate().certificate}).value() == 200);
  CHECK(ask({.any = true}).value() == 200);
  CHECK_THAT(ask({}).error().message, Catch::Contains("certificate verify failed"));
  CHECK_FALSE(client_of(secure.port()).ask({"GET", "/livez", {}, {}}, kUnhurried));
}

TEST_CASE("a client reads a stream in pieces, to its end") {
  TestServer server(says("abc"));
  const ClientRequest request{"POST",
                              "/v1/completions",
                              {{"Content-Type", "application/json"}},
                              R"({"prompt":"x","max_tokens":3,"stream":true})"};
  WebClient client = client_of(server.port());
  REQUIRE(client.resolve());
  const Received received = received_from(client, request);
  CHECK(received.status.value() == 200);
  CHECK(received.num_pieces > 0);
  REQUIRE(received.body);
  CHECK(received.body->ends_with("data: [DONE]\n\n"));
}

TEST_CASE("a client tells a reply's end from a connection that broke") {
  const auto body = [](const std::string& reply) {
    const Answers server(reply);
    return received_from(client_of(server.port()), {}).body;
  };
  CHECK(body("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab").value() == "ab");
  CHECK(body("HTTP/1.1 200 OK\r\n\r\nto the end").value() == "to the end");
  CHECK(body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n").value() == "ab");
  CHECK_FALSE(body("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"));
  CHECK_FALSE(body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"));
  const auto status = [](const std::string& reply) {
    const Answers server(reply);
    return client_of(server.port()).ask({}, kUnhurried);
  };
  CHECK(status("HTTP/1.1 503 No\r\n\r\n").value() == 503);
  CHECK_FALSE(status(""));
  CHECK_FALSE(status("SSH-2.0-OpenSSH\r\n"));
}

TEST_CASE("a server that does not answer is given up") {
  boost::asio::io_context context;
  const boost::asio::ip::tcp::acceptor silent(context, {boost::asio::ip::address_v4::loopback(), 0});
  CHECK_FALSE(client_of(silent.local_endpoint().port()).ask({}, 20ms));
  CHECK_FALSE(WebClient(HttpUrl{false, "127.0.0.1", "1", ""}).ask({}, kUnhurried));
}

TEST_CASE("authorities are read from the first file that a distribution has") {
  const std::vector<std::string> files = {"/nowhere/authorities.pem", "/proc/self/status", "/proc/self/stat"};
  CHECK(first_readable(files) == "/proc/self/status");
  CHECK(first_readable(std::span(files).first(1)).empty());
}
