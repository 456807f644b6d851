// CollectorLink: posts bodies of JSON to an HTTP server that takes what is observed here, each on a connection of its
// own, in plain or over TLS, where the peer must show a certificate for its name. One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "core/base/result.h"
#include "server/ops/http_url.h"

namespace quire {

// Where an endpoint's URL points; its path is OTLP's where it has none. Throws StartupError for what is no such URL.
HttpUrl parse_collector(const std::string& url);

class CollectorLink {
 public:
  // `ca`: a PEM file of the authorities to believe; empty: the system's. Throws StartupError: the URL, or the file.
  CollectorLink(const std::string& url, const std::string& ca);
  ~CollectorLink();
  CollectorLink(const CollectorLink&) = delete;
  CollectorLink& operator=(const CollectorLink&) = delete;

  // Empty where the collector took the body; otherwise why it did not. Waits for some seconds at most.
  std::string post(const std::string& body) const;

 private:
  struct Tls;
  HttpUrl address_;
  std::unique_ptr<Tls> tls_;  // null: plain
};

}  // namespace quire
