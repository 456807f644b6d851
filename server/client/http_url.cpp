#include "server/ops/http_url.h"

#include <algorithm>

namespace quire {

std::optional<HttpUrl> parse_http_url(std::string_view text) {
  constexpr std::string_view kPlain = "http://";
  constexpr std::string_view kSecure = "https://";
  HttpUrl url;
  url.secure = text.starts_with(kSecure);
  if (!url.secure && !text.starts_with(kPlain)) return std::nullopt;
  text.remove_prefix(url.secure ? kSecure.size() : kPlain.size());
  const std::size_t slash = std::min(text.find('/'), text.size());
  url.host = text.substr(0, slash);
  url.path = text.substr(slash);
  url.port = url.secure ? "443" : "80";
  const std::size_t colon = url.host.rfind(':');
  if (colon != std::string::npos && url.host.back() != ']') {
    url.port = url.host.substr(colon + 1);
    url.host.resize(colon);
  }
  if (url.host.size() > 2 && url.host.front() == '[') url.host = url.host.substr(1, url.host.size() - 2);
  const bool good_port = !url.port.empty() && url.port.find_first_not_of("0123456789") == std::string::npos;
  return url.host.empty() || !good_port ? std::nullopt : std::optional(url);
}

}  // namespace quire
