#include "server/gate/gate.h"

#include "core/base/ascii.h"
#include "server/api/common/errors.h"
#include "server/gate/browser_guard.h"
#include "server/ops/keys/failure_limiter.h"
#include "server/ops/keys/quota.h"
#include "server/state/settings.h"
#include "server/wire/multipart.h"

namespace quire {

namespace {

// OpenAI's clients send a bearer token, Anthropic's x-api-key.
std::string_view presented_key(const RequestHead& head) {
  constexpr std::string_view kBearer = "bearer ";
  std::string_view value = head.field("authorization");
  if (value.empty()) return head.field("x-api-key");
  if (lowered(value.substr(0, kBearer.size())) != kBearer) return {};
  value.remove_prefix(kBearer.size());
  while (!value.empty() && value.front() == ' ')
    value.remove_prefix(1);
  return value;
}

Response unknown_route(const RouteMatch& match, const RequestHead& head) {
  if (match.status == 404 && match.left_out != Module::kCore)
    return error_response(404, "not_found", "There is nothing at this path: it " + left_out(match.left_out));
  if (match.status == 404) return error_response(404, "not_found", "There is nothing at this path");
  if (head.method == "OPTIONS") return Response{204, "", "", {{"Allow", match.allow}}};
  Response response = error_response(405, "method_not_allowed", "This path does not answer " + head.method);
  response.fields.push_back({"Allow", match.allow});
  return response;
}

std::optional<Response> phase_refusal(const ServerState& state, bool resumes) {
  const ServerPhase phase = state.phase.load();
  // Requests on open connections cannot reach the process that took over, so this one serves them.
  if (phase == ServerPhase::kRefusing && (state.handing_over.load() || resumes)) return std::nullopt;
  if (phase != ServerPhase::kStarting && phase < ServerPhase::kRefusing) return std::nullopt;
  return error_response(phase == ServerPhase::kStarting ? still_starting() : shutting_down());
}

PageAccess access_of(const Route& route, const SecurityOptions& security) {
  switch (route.access) {
    case Access::kOpen: return PageAccess::kOpen;
    case Access::kKey: return PageAccess::kKey;
    case Access::kMetrics: return security.metrics;
    case Access::kAdmin: break;
  }
  return PageAccess::kAdmin;
}

// Without keys the address is the only protection: refuses pages whose host name was rebound to this server.
std::optional<Response> host_refusal(const Settings& settings, const RequestHead& head, const Arrival& arrival,
                                     PageAccess access) {
  const bool is_keyless = arrival.on_admin || settings.keys.empty();
  const bool proves_name = settings.tls != nullptr && !arrival.on_admin;
  if (!is_keyless || proves_name || arrival.is_local || access == PageAccess::kOpen) return std::nullopt;
  if (is_trusted_host(head.field("host"), settings.options.security.allowed_hosts)) return std::nullopt;
  return error_response(403, "host_not_allowed",
                        "Without API keys this server answers only to its own names: add this Host to "
                        "security.allowed_hosts, or configure security.keys");
}

Response no_key_refusal(ServerState& state, const Settings& settings, const Arrival& arrival, bool presented) {
  const auto wait = state.failures.count(arrival.peer, settings.options.security.max_failures_per_minute, Clock::now());
  if (wait) {
    return error_response(Error{ErrorKind::kRateLimited, "Too many requests without a valid API key from this address",
                                "too_many_failures", "", *wait});
  }
  return error_response(
      Error{ErrorKind::kUnauthorized,
            presented ? "Incorrect API key provided" : "An API key is needed: send 'Authorization: Bearer KEY'",
            "invalid_api_key", "", std::nullopt});
}

// Finds the request's key, or returns why it may not pass.
std::optional<Response> check_key(ServerState& state, const Settings& settings, const RequestHead& head,
                                  const Arrival& arrival, Admission& admission) {
  const PageAccess access = access_of(*admission.route, settings.options.security);
  if (auto refusal = host_refusal(settings, head, arrival, access)) return refusal;
  if (std::holds_alternative<AdminHandler>(admission.route->answer)) {
    if (auto refusal = cross_site_refusal(head)) return refusal;
  }
  const std::string_view presented = presented_key(head);
  if (!presented.empty()) admission.key = settings.keys.find(presented);
  admission.reader.sees_keys = arrival.on_admin || settings.keys.empty() || admission.key != nullptr;
  admission.reader.sees_all = arrival.on_admin || (admission.key != nullptr && admission.key->admin);
  if (admission.key != nullptr) admission.reader.key_name = admission.key->name;
  if (access == PageAccess::kOpen || arrival.on_admin) {
    admission.key = nullptr;
    return std::nullopt;
  }
  if (settings.keys.empty()) {
    if (access == PageAccess::kKey) return std::nullopt;
    return error_response(Error{ErrorKind::kForbidden,
                                "This needs an admin key or the admin listener, and the server has neither for it",
                                "admin_closed", "", std::nullopt});
  }
  if (admission.key == nullptr) return no_key_refusal(state, settings, arrival, !presented.empty());
  if (access == PageAccess::kAdmin && !admission.key->admin) {
    return error_response(
        Error{ErrorKind::kForbidden, "This needs an admin key", "admin_key_required", "", std::nullopt});
  }
  return std::nullopt;
}

std::optional<Response> media_refusal(const CorsOptions& cors, const RequestHead& head) {
  const std::string encoding = lowered(head.field("content-encoding"));
  const std::string_view type = head.field("content-type");
  // curl names a form type where a script gives none. A page can send a form type, or no type, to any site without
  // asking first.
  const bool is_json = type.empty()         ? !is_cross_site(head) || has_allowed_origin(cors, head)
                       : is_form_type(type) ? !is_from_browser(head)
                                            : is_json_type(type);
  if (is_json && (encoding.empty() || encoding == "identity")) return std::nullopt;
  return error_response(415, "unsupported_media_type", "The body must be application/json, not compressed");
}

// A page can send a form to any site without asking first.
std::optional<Response> form_refusal(const CorsOptions& cors, const RequestHead& head) {
  const bool is_foreign = is_cross_site(head) && !has_allowed_origin(cors, head);
  if (multipart_boundary(head.field("content-type")) && !is_foreign) return std::nullopt;
  return error_response(415, "unsupported_media_type", "The body must be multipart/form-data");
}

std::optional<Response> endpoint_refusal(ServerState& state, const Settings& settings, const RequestHead& head,
                                         bool resumes, Admission& admission) {
  if (auto refusal = phase_refusal(state, resumes)) return refusal;
  const bool is_post = admission.route->method == "POST";
  const CorsOptions& cors = settings.options.cors;
  if (is_post) {
    if (auto refusal = admission.route->takes_form() ? form_refusal(cors, head) : media_refusal(cors, head))
      return refusal;
  }
  // Each message of a WebSocket is counted by itself; batches have quotas of their own, and reading them is free.
  const bool is_socket = std::holds_alternative<SocketRoute>(admission.route->answer);
  const bool asks_after = !is_post && admission.route->is_stored();
  if (admission.key == nullptr || is_socket || asks_after || !admission.route->is_counted) return std::nullopt;
  const auto now = Clock::now();
  const QuotaUse use = is_post && !resumes ? QuotaUse::kRuns : QuotaUse::kReads;
  auto lease = state.quotas.admit(*admission.key, now, use);
  for (auto& [name, value] : state.quotas.headers(*admission.key, now))
    admission.fields.push_back({std::move(name), std::move(value)});
  if (!lease) return error_response(lease.error());
  admission.lease = std::move(*lease);
  return std::nullopt;
}

}  // namespace

Admission pass_gate(ServerState& state, const Settings& settings, const RequestHead& head, const Arrival& arrival) {
  Admission admission;
  const RouteMatch match = find_route(head.method, head.path);
  admission.fields = cors_fields(settings.options.cors, head);
  if (match.route == nullptr || (arrival.on_admin && match.route->is_api())) {
    if (is_preflight(head) && !match.allow.empty()) {
      admission.refusal = preflight_response(settings.options.cors, head, match.allow);
    } else {
      admission.refusal = unknown_route(match.route == nullptr ? match : RouteMatch{nullptr, 404, ""}, head);
    }
    return admission;
  }
  admission.route = match.route;
  admission.refusal = check_key(state, settings, head, arrival, admission);
  if (!admission.refusal && match.route->is_api()) {
    admission.refusal = endpoint_refusal(state, settings, head, arrival.resumes, admission);
  }
  return admission;
}

}  // namespace quire
