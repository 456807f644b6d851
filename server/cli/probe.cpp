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

#include "core/base/result.h"
#include "server/cli/commands.h"
#include "server/ops/http_url.h"

namespace quire::cli {

namespace {

// The status of GET url, or 0 where nobody answers. Throws StartupError for what is no URL of http.
int http_status(const std::string& text) {
  namespace asio = boost::asio;
  const auto url = parse_http_url(text.find("://") == std::string::npos ? "http://" + text : text);
  if (!url || url->secure) throw StartupError(fmt::format("'{}' must be http://HOST[:PORT][/PATH]", text));
  const std::string host = url->host.find(':') == std::string::npos ? url->host : "[" + url->host + "]";
  const std::string request = fmt::format("GET {} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\n\r\n",
                                          url->path.empty() ? "/" : url->path, host, url->port);
  try {
    asio::io_context io;
    asio::ip::tcp::socket socket(io);
    asio::connect(socket, asio::ip::tcp::resolver(io).resolve(url->host, url->port));
    asio::write(socket, asio::buffer(request));
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
