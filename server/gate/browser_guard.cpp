#include "server/gate/browser_guard.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/base/ascii.h"

namespace quire {

namespace {

// RFC 6761, RFC 6762, RFC 8375, ICANN's .internal; .svc is how Kubernetes names a service within its cluster.
constexpr std::array<std::string_view, 8> kLocalDomains = {".localhost", ".local", ".internal",  ".test",
                                                           ".invalid",   ".lan",   ".home.arpa", ".svc"};

std::string machine_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? lowered(std::string_view(name.data())) : std::string();
}

// The host without the port and without a final dot.
std::string name_of(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && !host.ends_with(']')) host = host.substr(0, colon);
  while (host.ends_with('.'))
    host.remove_suffix(1);
  return lowered(host);
}

// A name whose last label is a number is an address: no top-level domain is numeric.
bool is_numeric_address(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return name.starts_with('[') ||
         (!last.empty() && std::all_of(last.begin(), last.end(), [](char c) { return c >= '0' && c <= '9'; }));
}

// The type in lower case, without parameters.
std::string bare_type(std::string_view content_type) {
  std::string type = lowered(content_type.substr(0, content_type.find(';')));
  while (type.ends_with(' ') || type.ends_with('\t'))
    type.pop_back();
  return type;
}

}  // namespace

bool is_trusted_host(std::string_view host, const std::vector<std::string>& allowed) {
  const std::string name = name_of(host);
  if (name.find('.') == std::string::npos || is_numeric_address(name) || name == machine_name()) return true;
  const auto ends = [&](std::string_view domain) { return name.ends_with(domain); };
  const auto is = [&](const std::string& each) { return each == "*" || lowered(each) == name; };
  return std::any_of(kLocalDomains.begin(), kLocalDomains.end(), ends) ||
         std::any_of(allowed.begin(), allowed.end(), is);
}

bool is_cross_site(const RequestHead& head) {
  const std::string_view origin = head.field("origin");
  if (origin.empty()) {
    const std::string_view site = head.field("sec-fetch-site");
    return site == "cross-site" || site == "same-site";
  }
  const std::size_t scheme = origin.find("://");
  return scheme == std::string_view::npos || lowered(origin.substr(scheme + 3)) != lowered(head.field("host"));
}

std::optional<Response> cross_site_refusal(const RequestHead& head) {
  if (is_cross_site(head)) {
    return error_response(403, "origin_not_allowed", "Pages of other sites may not use /admin");
  }
  // Pages may send some types other than JSON, and bodies without a type, to any site without a preflight request.
  const std::string_view type = head.field("content-type");
  if (!is_json_type(type) || (type.empty() && head.has_body())) {
    return error_response(415, "unsupported_media_type", "The body must be application/json");
  }
  return std::nullopt;
}

bool is_from_browser(const RequestHead& head) {
  return std::any_of(head.fields.begin(), head.fields.end(), [](const HeaderField& field) {
    const std::string_view name = field.name;
    return name == "origin" || name == "referer" || name == "cookie" || name.starts_with("sec-") ||
           (name == "user-agent" && field.value.starts_with("Mozilla/"));
  });
}

bool is_form_type(std::string_view content_type) {
  return bare_type(content_type) == "application/x-www-form-urlencoded";
}

bool is_json_type(std::string_view content_type) {
  const std::string type = bare_type(content_type);
  const bool suffix =
      type.size() > 5 && type.rfind("application/", 0) == 0 && type.compare(type.size() - 5, 5, "+json") == 0;
  return type.empty() || type == "application/json" || type == "text/json" || suffix;
}

}  // namespace quire
