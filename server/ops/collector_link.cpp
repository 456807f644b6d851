#include "server/ops/collector_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>

namespace quire {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::seconds kPatience{5};

using Tcp = asio::ip::tcp;
using Failed = boost::system::error_code;

// One request and the first line of its answer. Asynchronous for one reason: that the whole of it can be given up
// after a time. `shake` is called once there is a connection, and calls what it is given once bytes can be sent.
template <class Stream, class Shake>
std::string exchange(asio::io_context& context, Stream& stream, const HttpUrl& address, const std::string& request,
                     const Shake& shake) {
  Tcp::resolver resolver(context);
  asio::streambuf reply(65536);
  Failed failed = asio::error::timed_out;
  const auto send = [&](const Failed& unshaken) {
    failed = unshaken;
    if (failed) return;
    failed = asio::error::timed_out;
    asio::async_write(stream, asio::buffer(request), [&](const Failed& broken, std::size_t) {
      failed = broken;
      if (failed) return;
      failed = asio::error::timed_out;
      asio::async_read_until(stream, reply, "\r\n", [&](const Failed& cut, std::size_t) { failed = cut; });
    });
  };
  resolver.async_resolve(address.host, address.port, [&](const Failed& unknown, const auto& endpoints) {
    failed = unknown;
    if (failed) return;
    failed = asio::error::timed_out;
    asio::async_connect(stream.lowest_layer(), endpoints, [&](const Failed& refused, const auto&) {
      failed = refused;
      if (failed) return;
      failed = asio::error::timed_out;
      shake(send);
    });
  });
  context.run_for(kPatience);
  if (failed) return failed.message();
  std::string status(64, '\0');
  status.resize(static_cast<std::size_t>(reply.sgetn(status.data(), static_cast<std::streamsize>(status.size()))));
  if (status.size() > 9 && status[9] == '2') return {};
  return "it answered " + status.substr(0, status.find('\r'));
}

bool is_address(const std::string& host) {
  Failed failed;
  asio::ip::make_address(host, failed);
  return !failed;
}

}  // namespace

struct CollectorLink::Tls {
  asio::ssl::context context{asio::ssl::context::tls_client};
};

HttpUrl parse_collector(const std::string& url) {
  auto address = parse_http_url(url);
  if (!address) {
    throw StartupError(fmt::format("tracing.endpoint: '{}' must be http[s]://HOST[:PORT][/PATH]", url));
  }
  if (address->path.empty()) address->path = "/v1/traces";
  return *std::move(address);
}

CollectorLink::CollectorLink(const std::string& url, const std::string& ca) : address_(parse_collector(url)) {
  if (!address_.secure) {
    if (!ca.empty()) throw StartupError("tracing.ca: the endpoint is not https, and shows no certificate");
    return;
  }
  tls_ = std::make_unique<Tls>();
  ::SSL_CTX_set_min_proto_version(tls_->context.native_handle(), TLS1_2_VERSION);
  tls_->context.set_verify_mode(asio::ssl::verify_peer);
  Failed failed;
  if (ca.empty()) {
    tls_->context.set_default_verify_paths(failed);
  } else {
    tls_->context.load_verify_file(ca, failed);
  }
  if (failed) throw StartupError(fmt::format("tracing.ca: '{}': {}", ca, failed.message()));
}

CollectorLink::~CollectorLink() = default;

std::string CollectorLink::post(const std::string& body) const {
  const std::string request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      address_.path, address_.host, address_.port, body.size(), body);
  asio::io_context context;
  if (!tls_) {
    Tcp::socket socket(context);
    return exchange(context, socket, address_, request, [](const auto& send) { send(Failed()); });
  }
  asio::ssl::stream<Tcp::socket> stream(context, tls_->context);
  stream.set_verify_callback(asio::ssl::host_name_verification(address_.host));
  // An address is no name that a server could choose a certificate by.
  if (!is_address(address_.host)) SSL_set_tlsext_host_name(stream.native_handle(), address_.host.c_str());
  return exchange(context, stream, address_, request,
                  [&](const auto& send) { stream.async_handshake(asio::ssl::stream_base::client, send); });
}

}  // namespace quire
