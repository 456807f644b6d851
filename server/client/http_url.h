// HttpUrl: a parsed URL of http or https, for requests that this process makes. Value type; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quire {

struct HttpUrl {
  bool secure = false;
  std::string host;  // an IPv6 address without its brackets
  std::string port;
  std::string path;  // with the query; empty where there is none

  // host:port, as a Host field holds it.
  std::string authority() const;
};

// Nothing for anything but http[s]://HOST[:PORT][/PATH][?QUERY].
std::optional<HttpUrl> parse_http_url(std::string_view url);

// Where a redirect's Location leads from `from`; nothing where that is no URL of http.
std::optional<HttpUrl> redirected_url(const HttpUrl& from, std::string_view location);

// Whether both are on one server: the same scheme, host and port.
bool is_same_origin(const HttpUrl& a, const HttpUrl& b);

}  // namespace quire
