#include "server/web/pages.h"

#include "kernels/check.h"
#include "server/web/assets.h"

namespace quire::web {

namespace {

// Nothing from elsewhere is ever loaded, and no other site may frame the page.
constexpr const char* kContentPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-ancestors "
    "'none'; "
    "base-uri 'none'; form-action 'self'";

Response asset(std::string_view name, const char* content_type) {
  const auto bytes = find_asset(name);
  QUIRE_CHECK(bytes.has_value(), "every page that has a route is embedded");
  Response response{200, content_type, std::string(*bytes)};
  response.fields = {{"Content-Security-Policy", kContentPolicy},
                     {"X-Content-Type-Options", "nosniff"},
                     {"Cache-Control", "no-cache"}};
  return response;
}

constexpr const char* kScript = "text/javascript; charset=utf-8";

}  // namespace

Response index_page(ServerState&) {
  return asset("index.html", "text/html; charset=utf-8");
}

Response style_sheet(ServerState&) {
  return asset("style.css", "text/css; charset=utf-8");
}

Response main_script(ServerState&) {
  return asset("main.js", kScript);
}

Response chat_script(ServerState&) {
  return asset("chat.js", kScript);
}

Response status_script(ServerState&) {
  return asset("status.js", kScript);
}

}  // namespace quire::web
