#include "server/http/router.h"

#include <array>
#include <span>

#include "server/api/chat.h"
#include "server/api/completions.h"
#include "server/api/embeddings.h"
#include "server/api/messages.h"
#include "server/api/responses.h"
#include "server/api/stored_chats.h"
#include "server/api/text_endpoints.h"
#include "server/http/admin_pages.h"
#include "server/http/model_pages.h"
#include "server/http/status_pages.h"
#include "server/web/pages.h"

namespace quire {

namespace {

constexpr Route kRoutes[] = {
    {"/", "GET", nullptr, &web::index_page, Access::kOpen},
    {"/ui/style.css", "GET", nullptr, &web::style_sheet, Access::kOpen},
    {"/ui/main.js", "GET", nullptr, &web::main_script, Access::kOpen},
    {"/ui/chat.js", "GET", nullptr, &web::chat_script, Access::kOpen},
    {"/ui/status.js", "GET", nullptr, &web::status_script, Access::kOpen},
    {"/livez", "GET", nullptr, &livez, Access::kOpen},
    {"/readyz", "GET", nullptr, &readyz, Access::kOpen},
    {"/startupz", "GET", nullptr, &startupz, Access::kOpen},
    {"/health", "GET", nullptr, &readyz, Access::kOpen},
    {"/ping", "GET", nullptr, &readyz, Access::kOpen},
    {"/metrics", "GET", nullptr, &metrics_page, Access::kMetrics},
    {"/admin/reload", "POST", nullptr, nullptr, Access::kAdmin, &admin_reload},
    {"/admin/trace", "POST", nullptr, nullptr, Access::kAdmin, &admin_trace},
    {"/admin/models", "GET", nullptr, nullptr, Access::kAdmin, &admin_list_models},
    {"/admin/models/load", "POST", nullptr, nullptr, Access::kAdmin, &admin_load_model},
    {"/admin/models/unload", "POST", nullptr, nullptr, Access::kAdmin, &admin_unload_model},
    {"/admin/models/sleep", "POST", nullptr, nullptr, Access::kAdmin, &admin_sleep_model},
    {"/admin/models/wake", "POST", nullptr, nullptr, Access::kAdmin, &admin_wake_model},
    {"/admin/models/replace", "POST", nullptr, nullptr, Access::kAdmin, &admin_replace_model},
    {"/models/load", "POST", nullptr, nullptr, Access::kAdmin, &admin_load_model},
    {"/models/unload", "POST", nullptr, nullptr, Access::kAdmin, &admin_unload_model},
    {"/sleep", "POST", nullptr, nullptr, Access::kAdmin, &admin_sleep_model},
    {"/wake_up", "POST", nullptr, nullptr, Access::kAdmin, &admin_wake_model},
    {"/is_sleeping", "GET", nullptr, nullptr, Access::kAdmin, &admin_is_sleeping},
    {"/version", "GET", nullptr, &version_page, Access::kOpen},
    {"/v1/models", "GET", &list_models, nullptr},
    {"/models", "GET", &list_models, nullptr},
    {"/v1/models/*", "GET", &get_model, nullptr},
    {"/v1/completions", "POST", &parse_completion, nullptr},
    {"/completions", "POST", &parse_completion, nullptr},
    {"/v1/chat/completions", "POST", &parse_chat, nullptr},
    {"/chat/completions", "POST", &parse_chat, nullptr},
    {"/v1/chat/completions/*", "GET", &get_stored_chat, nullptr},
    {"/v1/chat/completions/*", "DELETE", &delete_stored_chat, nullptr},
    {"/v1/messages", "POST", &parse_messages, nullptr},
    {"/v1/messages/count_tokens", "POST", &count_message_tokens, nullptr},
    {"/v1/responses", "POST", &parse_response, nullptr},
    {"/responses", "POST", &parse_response, nullptr},
    {"/v1/responses/input_tokens", "POST", &count_response_tokens, nullptr},
    {"/v1/responses/*", "GET", &get_response, nullptr},
    {"/v1/responses/*", "DELETE", &delete_response, nullptr},
    {"/v1/responses/*", "POST", &cancel_response, nullptr},
    {"/v1/embeddings", "POST", &parse_embeddings, nullptr},
    {"/embeddings", "POST", &parse_embeddings, nullptr},
    {"/tokenize", "POST", &tokenize, nullptr},
    {"/detokenize", "POST", &detokenize, nullptr},
    {"/apply-template", "POST", &apply_template, nullptr},
};

bool matches(std::string_view pattern, std::string_view path) {
  if (pattern.back() != '*') return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.substr(0, pattern.size()) == pattern;
}

}  // namespace

RouteMatch find_route(std::string_view method, std::string_view path) {
  RouteMatch match{nullptr, 404, ""};
  for (const Route& route : kRoutes) {
    if (!matches(route.path, path)) continue;
    if (route.method == method || (route.method == "GET" && method == "HEAD")) return RouteMatch{&route, 200, ""};
    match.status = 405;
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += route.method;
    if (route.method == "GET") match.allow += ", HEAD";
  }
  // The root is a page for people, not a resource of the API: only reading it means anything.
  if (path == "/" && method != "OPTIONS") return RouteMatch{nullptr, 404, ""};
  if (!match.allow.empty()) match.allow += ", OPTIONS";
  return match;
}

}  // namespace quire
