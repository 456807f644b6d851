#include "server/client/http_url.h"

#include <algorithm>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <boost/version.hpp>
#if BOOST_VERSION < 108300
#include <boost/url/src.hpp>  // packages before Boost 1.83 have no compiled library
#endif
#include <vector>

namespace quire {

namespace {

std::string text_of(boost::core::string_view view) {
  return std::string(view.data(), view.size());
}

// Removes the segments "." and ".." of a path with its query (RFC 3986, 5.2.4).
std::string without_dots(std::string_view target) {
  const std::size_t query = std::min(target.find('?'), target.size());
  std::vector<std::string_view> kept;
  std::string_view rest = target.substr(0, query);
  while (!rest.empty()) {
    rest.remove_prefix(1);  // its slash
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view segment = rest.substr(0, end);
    rest.remove_prefix(end);
    const bool is_dots = segment == "." || segment == "..";
    if (segment == ".." && !kept.empty()) kept.pop_back();
    if (!is_dots) kept.push_back(segment);
    if (is_dots && rest.empty()) kept.emplace_back();
  }
  std::string path;
  for (const std::string_view segment : kept)
    path.append("/").append(segment);
  return path.append(target.substr(query));
}

}  // namespace

std::string HttpUrl::authority() const {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
}

std::optional<HttpUrl> redirected_url(const HttpUrl& from, std::string_view location) {
  const std::string target(location.substr(0, location.find('#')));
  if (target.empty()) return std::nullopt;
  const std::string scheme = from.secure ? "https:" : "http:";
  const std::string root = scheme + "//" + from.authority();
  if (target.starts_with("//")) return parse_http_url(scheme + target);
  if (target.starts_with("/")) return parse_http_url(root + without_dots(target));
  if (target.substr(0, target.find_first_of("/?")).find(':') != std::string::npos) return parse_http_url(target);
  const std::string path = from.path.substr(0, from.path.find('?'));
  if (target.starts_with("?")) return parse_http_url(root + path + target);
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  return parse_http_url(root + without_dots((folder.empty() ? "/" : folder) + target));
}

bool is_same_origin(const HttpUrl& a, const HttpUrl& b) {
  return a.secure == b.secure && a.host == b.host && a.port == b.port;
}

std::optional<HttpUrl> parse_http_url(std::string_view text) {
  const auto parsed = boost::urls::parse_uri(boost::core::string_view(text.data(), text.size()));
  if (!parsed) return std::nullopt;
  const boost::urls::url_view& url = *parsed;
  const bool secure = url.scheme_id() == boost::urls::scheme::https;
  if (!secure && url.scheme_id() != boost::urls::scheme::http) return std::nullopt;
  HttpUrl found{secure, url.host_address(), text_of(url.port()), text_of(url.encoded_target())};
  if (found.port.empty()) found.port = secure ? "443" : "80";
  // Boost 1.81 treats text after a colon that is no number as a path.
  const bool has_path = found.path.empty() || found.path.front() == '/' || found.path.front() == '?';
  if (found.host.empty() || !has_path || url.has_userinfo() || url.has_fragment()) return std::nullopt;
  if (!url.has_port() && url.encoded_authority().ends_with(':')) return std::nullopt;
  return found;
}

}  // namespace quire
