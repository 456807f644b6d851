#include "server/media/media_fetch.h"

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "server/media/data_url.h"
#include "tests/support/scripted_server.h"

namespace quire::test {
namespace {

ScriptedServer::Script says_bytes(const std::string& bytes) {
  return [bytes](const std::string&, const ScriptedServer::Send& send) { send(bytes); };
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
  const ScriptedServer server(says_bytes("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"));
  CHECK(fetch_media(server.url("/a.png"), allowing(server.name()), {}).value() == "hello");
  CHECK(code_of(server.url("/a.png"), MediaOptions()) == "image_url_not_allowed");
  CHECK(code_of(server.url("/a.png"), allowing("127.0.0.1")) == "image_url_not_allowed");  // another port
  CHECK(code_of(server.url("/a.png"), allowing("example.com")) == "image_url_not_allowed");
  CHECK(code_of("http://user@" + server.name() + "/", allowing(server.name())) == "image_url_not_allowed");
  CHECK(server.num_requests() == 1);
}

TEST_CASE("names that lead to internal addresses are not connected to", "[media]") {
  const ScriptedServer server(says_bytes("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"));
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
  const ScriptedServer other(says_bytes("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret"));
  const auto script = [&other](const std::string& request, const ScriptedServer::Send& send) {
    if (request.starts_with("GET /far")) {
      send("HTTP/1.1 302 Found\r\nLocation: " + other.url("/a.png") + "\r\nContent-Length: 0\r\n\r\n");
    } else if (request.starts_with("GET /near")) {
      send("HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n");
    } else if (request.starts_with("GET /there")) {
      send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere");
    } else {
      send("HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n");
    }
  };
  const ScriptedServer server(script);
  MediaOptions options = allowing(server.name());
  options.fetch.push_back(other.name());
  CHECK(fetch_media(server.url("/near"), options, {}).value() == "there");
  CHECK(code_of(server.url("/far"), options) == "image_url_failed");
  CHECK(other.num_requests() == 0);
  const int before = server.num_requests();
  CHECK(code_of(server.url("/again"), options) == "image_url_failed");
  CHECK(server.num_requests() - before <= 4);
}

TEST_CASE("interim responses come before a file, and a redirect may be relative", "[media]") {
  const std::string interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
  const ScriptedServer hinting(says_bytes(interim + interim + "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"));
  CHECK(fetch_media(hinting.url("/a.png"), allowing(hinting.name()), {}).value() == "hello");
  std::string many;
  for (int i = 0; i < 50; ++i)
    many += interim;
  const ScriptedServer endless(says_bytes(many));
  CHECK(code_of(endless.url("/a.png"), allowing(endless.name())) == "image_url_failed");
  const ScriptedServer moved([](const std::string& request, const ScriptedServer::Send& send) {
    if (request.starts_with("GET /a/b/moved ")) {
      send("HTTP/1.1 302 Found\r\nLocation: ../c.png#top\r\nContent-Length: 0\r\n\r\n");
    } else if (request.starts_with("GET /a/c.png ")) {
      send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere");
    } else {
      send("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n");  // to nowhere
    }
  });
  CHECK(fetch_media(moved.url("/a/b/moved"), allowing(moved.name()), {}).value() == "there");
  const int before = moved.num_requests();
  CHECK(code_of(moved.url("/nowhere"), allowing(moved.name())) == "image_url_failed");
  CHECK(moved.num_requests() == before + 1);
}

TEST_CASE("what a server sends is bounded in bytes and time", "[media]") {
  const auto endless = [](const std::string&, const ScriptedServer::Send& send) {
    send("HTTP/1.1 200 OK\r\n\r\n");
    while (send(std::string(10'000, 'x'))) {
    }
  };
  const ScriptedServer body(endless);
  CHECK(code_of(body.url("/a.png"), allowing(body.name())) == "image_url_failed");
  const ScriptedServer head([](const std::string&, const ScriptedServer::Send& send) {
    send("HTTP/1.1 200 OK\r\n");
    while (send("X-More: " + std::string(1000, 'x') + "\r\n")) {
    }
  });
  CHECK(code_of(head.url("/a.png"), allowing(head.name())) == "image_url_failed");
  const ScriptedServer too_long(says_bytes("HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n"));
  CHECK(code_of(too_long.url("/a.png"), allowing(too_long.name())) == "image_url_failed");
  const ScriptedServer too_short(says_bytes("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"));
  CHECK(code_of(too_short.url("/a.png"), allowing(too_short.name())) == "image_url_failed");
  const ScriptedServer absent(says_bytes("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"));
  CHECK(code_of(absent.url("/a.png"), allowing(absent.name())) == "image_url_failed");
  const ScriptedServer nonsense(says_bytes("SSH-2.0-OpenSSH\r\n"));
  CHECK(code_of(nonsense.url("/a.png"), allowing(nonsense.name())) == "image_url_failed");
  // A byte now and then keeps no fetch alive.
  const ScriptedServer slow([](const std::string& request, const ScriptedServer::Send& send) {
    send("HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n" + request.substr(0, 1));
    while (send("x"))
      std::this_thread::yield();
  });
  MediaOptions hasty = allowing(slow.name());
  hasty.fetch_time = std::chrono::milliseconds(1);
  CHECK(code_of(slow.url("/a.png"), hasty) == "image_url_failed");
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
  CHECK(decode_data_url("data:;charset=utf-8;BASE64,aGVsbG8%3D", 5).value().bytes == "hello");
  CHECK(decode_data_url("data:;base64,%2B%2f%2b/", 9).value().bytes == decode_base64("+/+/", 9).value());
  CHECK(decode_data_url("data:;base64,aGVsbG8%3D", 4).error().code == "image_too_large");
  CHECK(decode_data_url("data:,a%20b", 9).value().bytes == "a b");
  CHECK(decode_data_url("data:text/plain,%4", 9).error().code == "invalid_url");
}

}  // namespace
}  // namespace quire::test
