// WebClient: an HTTP client for this process's own requests (a collector, a health check, a benchmark). Each request
// has a connection of its own, plain or over TLS. Immutable after resolve(); any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "server/client/http_url.h"

namespace quire {

struct ClientRequest {
  std::string method = "GET";
  std::string path = "/";
  std::vector<std::pair<std::string, std::string>> fields = {};  // besides Host, Content-Length and Connection
  std::string body = {};
};

// Authorities whose server certificates are accepted.
struct ClientTrust {
  std::string ca = {};  // a PEM file of trusted authorities; empty: the system's
  bool any = false;     // accepts every certificate, for addresses that no certificate names
};

class WebClient {
 public:
  // Throws StartupError for an unusable file in `trust`.
  explicit WebClient(HttpUrl server, const ClientTrust& trust = {});
  ~WebClient();
  WebClient(const WebClient&) = delete;
  WebClient& operator=(const WebClient&) = delete;

  const HttpUrl& server() const { return server_; }
  // Resolves the server's name once for all requests; otherwise each request resolves it.
  Result<void> resolve();
  // Does the same, but keeps only accepted addresses (in digits, as text). An error if there is none.
  Result<void> resolve_to(const std::function<bool(const std::string& address)>& accepts);
  // Waits for the reply's status, `patience` at most.
  Result<int> ask(const ClientRequest& request, std::chrono::milliseconds patience) const;

 private:
  friend class HttpExchange;
  friend class ClientStream;
  struct Tls;
  struct Addresses;
  HttpUrl server_;
  std::unique_ptr<Tls> tls_;              // null: plain
  std::unique_ptr<Addresses> addresses_;  // null: not looked up
};

}  // namespace quire
