#include "server/gate/browser_guard.h"

#include <algorithm>

#include "server/state/server_options.h"
#include "server/wire/request_syntax.h"

namespace quire {

namespace {

constexpr const char* kPreflightAge = "7200";  // seconds; the most that Chromium honours

bool is_allowed(const CorsOptions& options, std::string_view origin) {
  const auto& origins = options.origins;
  return !origin.empty() && std::any_of(origins.begin(), origins.end(), [&](const std::string& allowed) {
    return allowed == "*" || allowed == origin;
  });
}

bool allows_any(const CorsOptions& options) {
  return std::find(options.origins.begin(), options.origins.end(), "*") != options.origins.end();
}

// Accepts a list of field names only, because the response echoes it.
bool is_name_list(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return is_token_char(c) || c == ',' || c == ' '; });
}

}  // namespace

std::vector<HeaderField> cors_fields(const CorsOptions& options, const RequestHead& head) {
  if (options.origins.empty()) return {};
  const std::string_view origin = head.field("origin");
  if (!is_allowed(options, origin)) return {{"Vary", "Origin"}};
  return {
      {"Access-Control-Allow-Origin", allows_any(options) ? "*" : std::string(origin)},
      {"Access-Control-Expose-Headers",
       "X-Request-Id, Retry-After, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
       "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, "
       "X-Quire-Warning"},
      {"Vary", "Origin"}};
}

bool has_allowed_origin(const CorsOptions& options, const RequestHead& head) {
  return is_allowed(options, head.field("origin"));
}

bool is_preflight(const RequestHead& head) {
  return head.method == "OPTIONS" && !head.field("origin").empty() &&
         !head.field("access-control-request-method").empty();
}

Response preflight_response(const CorsOptions& options, const RequestHead& head, const std::string& allow) {
  if (!is_allowed(options, head.field("origin"))) {
    return error_response(403, "origin_not_allowed", "Pages of this origin may not use this server");
  }
  Response response{204, "", "", {{"Allow", allow}, {"Access-Control-Allow-Methods", allow}}};
  const std::string_view names = head.field("access-control-request-headers");
  if (!names.empty() && is_name_list(names)) {
    response.fields.push_back({"Access-Control-Allow-Headers", std::string(names)});
  }
  response.fields.push_back({"Access-Control-Max-Age", kPreflightAge});
  return response;
}

}  // namespace quire
