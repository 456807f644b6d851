#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <string>

#include "server/cli/commands.h"

namespace quire::cli {

namespace {

// The status of GET url, or 0 where nobody answers.
int http_status(const std::string& url) {
  namespace asio = boost::asio;
  const auto host_at = url.find("://") == std::string::npos ? 0 : url.find("://") + 3;
  const auto path_at = std::min(url.find('/', host_at), url.size());
  const std::string authority = url.substr(host_at, path_at - host_at);
  const std::string path = path_at < url.size() ? url.substr(path_at) : "/";
  const auto colon = authority.rfind(':');
  const std::string host = authority.substr(0, colon);
  const std::string port = colon == std::string::npos ? "80" : authority.substr(colon + 1);
  try {
    asio::io_context io;
    asio::ip::tcp::socket socket(io);
    asio::connect(socket, asio::ip::tcp::resolver(io).resolve(host, port));
    asio::write(socket,
                asio::buffer("GET " + path + " HTTP/1.1\r\nHost: " + authority + "\r\nConnection: close\r\n\r\n"));
    asio::streambuf answer;
    asio::read_until(socket, answer, "\r\n");
    std::istream stream(&answer);
    std::string version;
    int status = 0;
    stream >> version >> status;
    return status;
  } catch (const boost::system::system_error&) {
    return 0;
  }
}

}  // namespace

void add_probe(CLI::App& app) {
  auto url = std::make_shared<std::string>();
  CLI::App* probe = app.add_subcommand("probe", "exit 0 where a GET of the URL answers 200 (container health checks)");
  probe->add_option("url", *url, "such as http://127.0.0.1:8080/readyz")->required();
  probe->callback([url] {
    const int status = http_status(*url);
    if (status == 200) return;
    fmt::print(stderr, "{}: {}\n", *url, status == 0 ? "no answer" : "HTTP " + std::to_string(status));
    throw CLI::RuntimeError(1);
  });
}

}  // namespace quire::cli
