// CollectorLink: posts bodies of JSON to an HTTP server that takes what is observed here, each on a connection of its
// own, in plain or over TLS, where the peer must show a certificate for its name. One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "core/base/result.h"

namespace quire {

// Where an endpoint's URL points. Throws StartupError for anything but http[s]://HOST[:PORT][/PATH].
struct CollectorAddress {
  bool secure = false;
  std::string host;
  std::string port;
  std::string path;
};
CollectorAddress parse_collector(const std::string& url);

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
  CollectorAddress address_;
  std::unique_ptr<Tls> tls_;  // null: plain
};

}  // namespace quire
