#include "server/fleet/redis_url.h"

#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <charconv>

namespace quire {

std::string RedisUrl::place() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + port + "/" + std::to_string(database);
}

std::optional<RedisUrl> parse_redis_url(std::string_view text) {
  const auto parsed = boost::urls::parse_uri(boost::core::string_view(text.data(), text.size()));
  if (!parsed) return std::nullopt;
  const boost::urls::url_view& url = *parsed;
  RedisUrl found{.secure = url.scheme() == "rediss",
                 .user = url.user(),
                 .password = url.password(),
                 .host = url.host_address(),
                 .port = std::string(url.port())};
  if (!found.secure && url.scheme() != "redis") return std::nullopt;
  if (found.port.empty()) found.port = "6379";
  const std::string path(url.encoded_path());
  if (path.size() > 1) {
    const auto [end, error] = std::from_chars(path.data() + 1, path.data() + path.size(), found.database);
    if (error != std::errc() || end != path.data() + path.size() || found.database < 0) return std::nullopt;
  }
  const bool is_bad = found.host.empty() || url.has_query() || url.has_fragment() || (!path.empty() && path[0] != '/');
  if (is_bad || (!found.user.empty() && found.password.empty())) return std::nullopt;
  return found;
}

}  // namespace quire
