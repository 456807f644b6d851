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
  std::string path;  // with the query; may be empty

  // host:port, for a Host field.
  std::string authority() const;
};

// Returns nothing unless the text is http[s]://HOST[:PORT][/PATH][?QUERY].
std::optional<HttpUrl> parse_http_url(std::string_view url);

// Target of a redirect's Location, relative to `from`; nothing if it is no http(s) URL.
std::optional<HttpUrl> redirected_url(const HttpUrl& from, std::string_view location);

// Returns whether scheme, host and port are the same.
bool is_same_origin(const HttpUrl& a, const HttpUrl& b);

}  // namespace quire
