#include "server/client/web_client.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

#include "core/base/files/regular_file.h"
#include "server/client/client_state.h"
#include "server/client/http_exchange.h"
#include "server/client/system_trust.h"

namespace quire {

namespace asio = boost::asio;

namespace {

asio::awaitable<void> read_status(HttpExchange& exchange, const ClientRequest& request,
                                  std::chrono::milliseconds patience, Result<int>& status) {
  status = co_await exchange.send(request, patience);
}

}  // namespace

WebClient::WebClient(HttpUrl server, const ClientTrust& trust) : server_(std::move(server)) {
  if (!server_.secure) return;
  tls_ = std::make_unique<Tls>();
  ::SSL_CTX_set_min_proto_version(tls_->context.native_handle(), TLS1_2_VERSION);
  if (trust.any) return;
  tls_->context.set_verify_mode(asio::ssl::verify_peer);
  boost::system::error_code failed;
  if (trust.ca.empty()) {
    trust_system(tls_->context, failed);
  } else {
    const auto pem = read_regular_file(trust.ca, kMostPemBytes);
    if (!pem) throw StartupError(fmt::format("'{}': {}", trust.ca, pem.error()));
    tls_->context.add_certificate_authority(asio::buffer(*pem), failed);
  }
  if (failed) throw StartupError(fmt::format("'{}': {}", trust.ca, failed.message()));
}

WebClient::~WebClient() = default;

Result<void> WebClient::resolve() {
  asio::io_context context;
  Tcp::resolver resolver(context);
  boost::system::error_code error;
  auto found = resolver.resolve(server_.host, server_.port, error);
  if (error) return invalid("cannot resolve " + server_.host + ": " + error.message());
  addresses_ = std::make_unique<Addresses>(Addresses{std::move(found)});
  return {};
}

Result<void> WebClient::resolve_to(const std::function<bool(const std::string& address)>& accepts) {
  if (auto resolved = resolve(); !resolved) return resolved;
  std::vector<Tcp::endpoint> kept;
  for (const auto& entry : addresses_->list) {
    if (accepts(entry.endpoint().address().to_string())) kept.push_back(entry.endpoint());
  }
  if (kept.empty()) return invalid(server_.host + " has no address that may be connected to");
  addresses_->list = Tcp::resolver::results_type::create(kept.begin(), kept.end(), server_.host, server_.port);
  return {};
}

Result<int> WebClient::ask(const ClientRequest& request, std::chrono::milliseconds patience) const {
  Result<int> status =
      failure(ErrorKind::kUnavailable, fmt::format("no answer within {} ms", patience.count()), "no_answer");
  asio::io_context context;
  HttpExchange exchange(context.get_executor(), *this);
  asio::co_spawn(context, read_status(exchange, request, patience, status), asio::detached);
  context.run_for(patience);
  return status;
}

}  // namespace quire
