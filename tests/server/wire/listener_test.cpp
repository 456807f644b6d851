#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "server/wire/listener.h"
#include "server/wire/tls.h"
#include "tests/server/test_server.h"
#include "tests/server/wire/certificate.h"
#include "tests/support/temporary_folder.h"

using namespace quire;
using namespace quire::test;

namespace {

int connect_to(std::uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  const timeval patience{HttpClient::kPatience, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return socket;
}

struct TlsReply {
  bool shaken = false;
  std::string text;
  std::string version;
  std::string protocol;
};

struct TlsClient {
  int max_version = TLS1_3_VERSION;
  bool with_certificate = false;

  // Sends a request and reads to the connection's end.
  TlsReply ask(std::uint16_t port, const std::string& request) const {
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
    SSL_CTX_set_security_level(context, 0);
    SSL_CTX_set_max_proto_version(context, max_version);
    if (with_certificate) {
      SSL_CTX_use_certificate_file(context, certificate().certificate.c_str(), SSL_FILETYPE_PEM);
      SSL_CTX_use_PrivateKey_file(context, certificate().key.c_str(), SSL_FILETYPE_PEM);
    }
    static constexpr unsigned char kOffer[] = {2, 'h', '2', 8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
    SSL_CTX_set_alpn_protos(context, kOffer, sizeof kOffer);
    const int socket = connect_to(port);
    SSL* ssl = SSL_new(context);
    SSL_set_fd(ssl, socket);
    TlsReply reply;
    reply.shaken = SSL_connect(ssl) == 1;
    if (reply.shaken) {
      reply.version = SSL_get_version(ssl);
      const unsigned char* chosen = nullptr;
      unsigned int size = 0;
      SSL_get0_alpn_selected(ssl, &chosen, &size);
      reply.protocol.assign(reinterpret_cast<const char*>(chosen), size);
      SSL_write(ssl, request.data(), static_cast<int>(request.size()));
      char buffer[4096];
      int count = 0;
      while ((count = SSL_read(ssl, buffer, sizeof buffer)) > 0)
        reply.text.append(buffer, static_cast<std::size_t>(count));
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
    ::close(socket);
    return reply;
  }
};

ServerOptions with_tls() {
  ServerOptions options = test_options();
  options.tls.certificate = certificate().certificate;
  options.tls.key = certificate().key;
  return options;
}

const std::string kLive = "GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

std::string completion(const std::string& prompt) {
  const std::string body = R"({"prompt":")" + prompt + R"(","max_tokens":1000,"stream":true})";
  return "POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string tls_error(const TlsOptions& options) {
  try {
    const TlsContext context(options);
  } catch (const StartupError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("over TLS everything is as without, large requests and streams too") {
  TestServer server({}, with_tls());
  const TlsReply live = TlsClient().ask(server.port(), kLive);
  CHECK(live.version == "TLSv1.3");
  CHECK(live.protocol == "http/1.1");
  CHECK(live.text.find("200 OK") != std::string::npos);
  const TlsReply streamed = TlsClient().ask(server.port(), completion(std::string(900, 'x')));
  CHECK(streamed.text.find("data: [DONE]") != std::string::npos);
  // More than one record of TLS.
  const TlsReply refused = TlsClient().ask(server.port(), completion(std::string(100'000, 'y')));
  CHECK(refused.text.find("400 Bad Request") != std::string::npos);
  CHECK(refused.text.find("context_length_exceeded") != std::string::npos);
}

TEST_CASE("TLS 1.2 is served, what is older is not, nor is plain HTTP") {
  TestServer server({}, with_tls());
  CHECK(TlsClient{.max_version = TLS1_2_VERSION}.ask(server.port(), kLive).version == "TLSv1.2");
  CHECK_FALSE(TlsClient{.max_version = TLS1_1_VERSION}.ask(server.port(), kLive).shaken);
  HttpClient plain(server.port());
  plain.send(kLive);
  CHECK_FALSE(plain.receive_until("200 OK"));
}

TEST_CASE("client certificates: required, optional, and of a known root only") {
  ServerOptions options = with_tls();
  options.tls.client_ca = certificate().certificate;
  {
    TestServer server({}, options);
    CHECK(TlsClient{.with_certificate = true}.ask(server.port(), kLive).text.find("200 OK") != std::string::npos);
    CHECK(TlsClient().ask(server.port(), kLive).text.empty());
  }
  options.tls.client_certificate = ClientCertificate::kOptional;
  TestServer server({}, options);
  CHECK(TlsClient().ask(server.port(), kLive).text.find("200 OK") != std::string::npos);
  CHECK(TlsClient{.with_certificate = true}.ask(server.port(), kLive).text.find("200 OK") != std::string::npos);
}

TEST_CASE("a certificate that cannot be used is refused by setting and file") {
  const TlsOptions good = with_tls().tls;
  CHECK(tls_error(good).empty());
  TlsOptions options = good;
  options.certificate = "/nowhere/c.pem";
  CHECK(tls_error(options).find("server.tls.certificate: '/nowhere/c.pem'") == 0);
  options = good;
  options.key = good.certificate;
  CHECK(tls_error(options).find("server.tls.key") == 0);
  options.key.clear();
  CHECK(tls_error(options).find("server.tls.key") == 0);
  options = good;
  options.certificate.clear();
  CHECK_THROWS_WITH(open_tls(options), Catch::StartsWith("server.tls.key is set without server.tls.certificate"));
  options.key.clear();
  CHECK(open_tls(options) == nullptr);
  options = good;
  options.certificate = std::filesystem::path(good.certificate).parent_path();
  CHECK(tls_error(options).ends_with("is not a regular file, but a folder"));
  options = good;
  options.client_ca = good.key;
  CHECK(tls_error(options).find("server.tls.client_ca") == 0);
}

TEST_CASE("a unix socket is served, has the asked mode, and goes with the server") {
  ServerOptions options = test_options();
  options.unix_socket = temporary("socket");
  options.unix_socket_mode = "0600";
  {
    TestServer server({}, options);
    struct stat status {};
    REQUIRE(::stat(options.unix_socket.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    options.unix_socket.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::send(socket, kLive.data(), kLive.size(), 0) == static_cast<ssize_t>(kLive.size()));
    std::string reply(4096, '\0');
    CHECK(::recv(socket, reply.data(), reply.size(), 0) > 0);
    CHECK(reply.find("200 OK") != std::string::npos);
    ::close(socket);
    // The path is in use: a second server must not steal it.
    Server second(options);
    CHECK_THROWS_AS(second.start(), StartupError);
  }
  CHECK_FALSE(std::filesystem::exists(options.unix_socket));
}

TEST_CASE("the admin socket has its own mode") {
  ServerOptions options = test_options();
  options.unix_socket = temporary("api-socket");
  options.unix_socket_mode = "0666";
  options.admin_listen = temporary("admin-socket");
  const auto mode_of = [](const std::string& path) {
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return status.st_mode & 0777;
  };
  CHECK(ServerOptions().admin_socket_mode == "0600");
  for (const auto& [mode, bits] : {std::pair("0600", 0600U), std::pair("0660", 0660U)}) {
    options.admin_socket_mode = mode;
    TestServer server({}, options);
    CHECK(mode_of(options.admin_listen) == bits);
    CHECK(mode_of(options.unix_socket) == 0666);
  }
}

TEST_CASE("a path that a killed server left behind is taken over") {
  ServerOptions options = test_options();
  options.unix_socket = temporary("left-behind");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  options.unix_socket.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  ::close(socket);
  REQUIRE(std::filesystem::exists(options.unix_socket));
  TestServer server({}, options);
  HttpClient client(server.port());
  CHECK(client.get("/livez").status == 200);
}

TEST_CASE("a path that is no abandoned socket is refused and left as it is") {
  const TemporaryFolder folder;
  folder.write("precious", "text");
  std::filesystem::create_directory(folder / "folder");
  std::filesystem::create_symlink(folder / "gone", folder / "link");
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  boost::asio::io_context context;
  for (const std::string name : {"precious", "folder", "link", "fifo"}) {
    CAPTURE(name);
    const std::string path = folder / name;
    const auto refusal = Catch::StartsWith("server.unix_socket: '" + path + "' exists and is not a socket");
    CHECK_THROWS_WITH(Listener::unix_path(context, "server.unix_socket", path, "0660"), refusal);
    CHECK_THROWS_WITH(Listener::check_unix_path("server.unix_socket", path), refusal);
    CHECK(std::filesystem::symlink_status(path).type() != std::filesystem::file_type::not_found);
  }
  CHECK(std::filesystem::file_size(folder / "precious") == 4);
  // A socket that another process listens on, and a file that replaced this one's.
  const std::string path = folder / "socket";
  auto first = Listener::unix_path(context, "server.unix_socket", path, "0660");
  CHECK_THROWS_WITH(Listener::unix_path(context, "server.admin_listen", path, "0660"),
                    Catch::StartsWith("server.admin_listen: another process listens on"));
  CHECK_NOTHROW(Listener::check_unix_path("server.unix_socket", path));
  std::filesystem::remove(path);
  folder.write("socket", "another");
  first.reset();
  CHECK(std::filesystem::exists(path));
}

TEST_CASE("one address has no more connections than it may") {
  ServerOptions options = test_options();
  options.max_connections_per_address = 2;
  TestServer server({}, options);
  HttpClient first(server.port());
  CHECK(first.get("/livez").status == 200);
  {
    HttpClient second(server.port());
    CHECK(second.get("/livez").status == 200);
    HttpClient third(server.port());
    CHECK(third.closed_by_server());
    CHECK(second.get("/livez").status == 200);
  }
  CHECK(first.get("/metrics").body.find("quire:http_connections_refused_total 1") != std::string::npos);
  // A freed place can be taken again, once the server has noticed.
  int status = 0;
  while (status != 200) {
    HttpClient again(server.port());
    status = again.get("/livez").status;
  }
  CHECK(status == 200);
}

TEST_CASE("there are no more connections than there may be") {
  ServerOptions options = test_options();
  options.max_connections = 1;
  TestServer server({}, options);
  HttpClient first(server.port());
  CHECK(first.get("/livez").status == 200);
  CHECK(HttpClient(server.port()).closed_by_server());
  CHECK(first.get("/metrics").body.find("quire:http_connections_refused_total 1") != std::string::npos);
}

TEST_CASE("the admin listener answers about the server and serves no model") {
  ServerOptions options = test_options();
  options.admin_listen = "127.0.0.1:0";
  options.security.metrics = PageAccess::kAdmin;
  TestServer server({}, options);
  HttpClient admin(server.server().admin_port());
  CHECK(admin.get("/livez").status == 200);
  CHECK(admin.get("/metrics").status == 200);
  CHECK(admin.get("/v1/models").status == 404);
  CHECK(admin.post("/v1/completions", R"({"prompt":"a"})").status == 404);
  HttpClient client(server.port());
  CHECK(client.get("/metrics").status == 403);
  CHECK(client.get("/v1/models").status == 200);
}

TEST_CASE("an address that makes no sense is refused") {
  boost::asio::io_context context;
  for (const std::string where : {"9090", "127.0.0.1:", "127.0.0.1:99999", "host:x", "name:80", ""}) {
    CAPTURE(where);
    CHECK_THROWS_AS(Listener::at(context, "server.admin_listen", where, "0660"), StartupError);
    CHECK_THROWS_AS(Listener::check_at("server.admin_listen", where), StartupError);
  }
  CHECK(Listener::at(context, "server.admin_listen", "[::1]:0", "0660")->port() > 0);
  CHECK_NOTHROW(Listener::check_at("server.admin_listen", "[::1]:0"));
}
