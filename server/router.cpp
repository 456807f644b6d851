#include "server/router.h"

#include <span>

#include "server/admin/handlers.h"
#include "server/api/batches/batches.h"
#include "server/api/chat/chat.h"
#include "server/api/completions/completions.h"
#include "server/api/llama/llama_completion.h"
#include "server/api/messages/messages.h"
#include "server/api/models/text_endpoints.h"
#include "server/api/ollama/ollama.h"
#include "server/api/pooling/pooling.h"
#include "server/api/responses/conversations.h"
#include "server/api/responses/responses.h"
#include "server/run/admin_task.h"

namespace quire {

namespace {

// The answer of a route whose sources are in the build only if their module is.
template <Module module, auto answer>
constexpr auto of() {
  if constexpr (is_built(module)) {
    return answer;
  } else {
    return LeftOut{module};
  }
}

constexpr Route kRoutes[] = {
    {"/", "GET", of<Module::kPage, &page_file>(), Access::kOpen},
    {"/ui/*", "GET", of<Module::kPage, &page_file>(), Access::kOpen},
    {"/livez", "GET", &livez, Access::kOpen},
    {"/readyz", "GET", &readyz, Access::kOpen},
    {"/startupz", "GET", &startupz, Access::kOpen},
    {"/health", "GET", &readyz, Access::kOpen},
    {"/ping", "GET", &readyz, Access::kOpen},
    {"/status", "GET", &status_view, Access::kMetrics},
    {"/metrics", "GET", &metrics_response, Access::kMetrics},
    {"/admin/reload", "POST", &admin_reload, Access::kAdmin},
    {"/admin/trace", "POST", &admin_trace, Access::kAdmin},
    {"/admin/cache", "GET", &admin_cache, Access::kAdmin},
    {"/admin/models", "GET", &admin_list_models, Access::kAdmin},
    {"/admin/models/load", "POST", &admin_load_model, Access::kAdmin},
    {"/admin/models/unload", "POST", &admin_unload_model, Access::kAdmin},
    {"/admin/models/sleep", "POST", &admin_sleep_model, Access::kAdmin},
    {"/admin/models/wake", "POST", &admin_wake_model, Access::kAdmin},
    {"/admin/models/replace", "POST", &admin_replace_model, Access::kAdmin},
    {"/admin/models/pull", "POST", of<Module::kHub, &admin_pull_model>(), Access::kAdmin},
    {"/admin/models/remove", "POST", of<Module::kHub, &admin_remove_model>(), Access::kAdmin},
    {"/admin/models/cache", "GET", of<Module::kHub, &admin_list_cache>(), Access::kAdmin},
    {"/models/load", "POST", &admin_load_model, Access::kAdmin},
    {"/models/unload", "POST", &admin_unload_model, Access::kAdmin},
    {"/v1/load_lora_adapter", "POST", &admin_load_adapter, Access::kAdmin},
    {"/v1/unload_lora_adapter", "POST", &admin_unload_adapter, Access::kAdmin},
    {"/sleep", "POST", &admin_sleep_model, Access::kAdmin},
    {"/wake_up", "POST", &admin_wake_model, Access::kAdmin},
    {"/is_sleeping", "GET", &admin_is_sleeping, Access::kAdmin},
    {"/version", "GET", &version_response, Access::kOpen},
    {"/openapi.json", "GET", &openapi_response, Access::kOpen},
    {"/v1/models", "GET", &list_models, Access::kKey, true, false},
    {"/models", "GET", &list_models, Access::kKey, true, false},
    {"/v1/models/*", "GET", &get_model, Access::kKey, true, false},
    {"/lora-adapters", "GET", &list_adapters, Access::kKey, true, false},
    {"/lora-adapters", "POST", &refuse_scales},
    {"/v1/completions", "POST", &parse_completion},
    {"/completions", "POST", &parse_completion},
    {"/completion", "POST", &parse_llama_completion},
    {"/infill", "POST", &parse_infill},
    {"/props", "GET", &llama_props, Access::kKey, false, false},
    {"/slots", "GET", &slots_response, Access::kKey},
    {"/slots/*", "POST", &act_on_slot, Access::kAdmin},
    {"/v1/chat/completions", "POST", &parse_chat},
    {"/chat/completions", "POST", &parse_chat},
    {"/v1/chat/completions/*", "GET", &get_stored_chat},
    {"/v1/chat/completions/*", "DELETE", &delete_stored_chat},
    {"/v1/chat/completions/render", "POST", &render_chat_request, Access::kKey, false},
    {"/v1/completions/render", "POST", &render_completion, Access::kKey, false},
    {"/v1/messages/render", "POST", &render_message, Access::kKey, false},
    {"/inference/v1/generate", "POST", &parse_token_generation},
    {"/v1/messages", "POST", &parse_messages},
    {"/v1/messages/count_tokens", "POST", &count_message_tokens, Access::kKey, false},
    {"/v1/responses", "POST", &parse_response},
    {"/v1/responses", "GET", SocketRoute{}},
    {"/responses", "POST", &parse_response},
    {"/v1/responses/input_tokens", "POST", &count_response_tokens, Access::kKey, false},
    {"/v1/responses/compact", "POST", &compact_response},
    {"/responses/compact", "POST", &compact_response},
    {"/v1/responses/*", "GET", &get_response},
    {"/v1/responses/*", "DELETE", &delete_response},
    {"/v1/responses/*", "POST", &cancel_response, Access::kKey, false, false},
    {"/v1/streams/*", "DELETE", &end_stream, Access::kKey, false, false},
    {"/v1/conversations", "POST", &create_conversation},
    {"/v1/conversations/*", "GET", &get_conversation},
    {"/v1/conversations/*", "POST", &change_conversation},
    {"/v1/conversations/*", "DELETE", &delete_conversation},
    {"/v1/embeddings", "POST", &parse_embeddings},
    {"/embeddings", "POST", &parse_embeddings},
    {"/pooling", "POST", &parse_pooling},
    {"/v1/pooling", "POST", &parse_pooling},
    {"/classify", "POST", &parse_classify},
    {"/v1/classify", "POST", &parse_classify},
    {"/rerank", "POST", &parse_rerank},
    {"/v1/rerank", "POST", &parse_rerank},
    {"/v2/rerank", "POST", &parse_rerank},
    {"/reranking", "POST", &parse_rerank},
    {"/v1/reranking", "POST", &parse_rerank},
    {"/score", "POST", &parse_score},
    {"/v1/score", "POST", &parse_score},
    {"/v1/files", "POST", of<Module::kBatches, FileUploadRoute{}>()},
    {"/v1/files", "GET", of<Module::kBatches, &list_files>()},
    {"/v1/files/*", "GET", of<Module::kBatches, &get_file>()},
    {"/v1/files/*", "DELETE", of<Module::kBatches, &delete_file>()},
    {"/v1/batches", "POST", of<Module::kBatches, &create_batch>()},
    {"/v1/batches", "GET", of<Module::kBatches, &list_batches>()},
    {"/v1/batches/*", "GET", of<Module::kBatches, &get_batch>()},
    {"/v1/batches/*", "POST", of<Module::kBatches, &cancel_batch>(), Access::kKey, false, false},
    {"/tokenize", "POST", &tokenize, Access::kKey, false},
    {"/detokenize", "POST", &detokenize, Access::kKey, false},
    {"/apply-template", "POST", &apply_template, Access::kKey, false},
    {"/api/chat", "POST", &parse_ollama_chat},
    {"/api/generate", "POST", &parse_ollama_generate},
    {"/api/embed", "POST", &parse_ollama_embed},
    {"/api/embeddings", "POST", &parse_ollama_embeddings},
    {"/api/tags", "GET", &ollama_tags, Access::kKey, true, false},
    {"/api/ps", "GET", &ollama_ps, Access::kKey, true, false},
    {"/api/show", "POST", &ollama_show},
    {"/api/version", "GET", &ollama_version, Access::kKey, true, false},
    {"/api/pull", "POST", of<Module::kHub, &ollama_pull>()},
    {"/api/push", "POST", &refuse_ollama_change},
    {"/api/create", "POST", &refuse_ollama_change},
    {"/api/copy", "POST", &refuse_ollama_change},
    {"/api/delete", "DELETE", of<Module::kHub, &ollama_delete>()},
};

bool matches(std::string_view pattern, std::string_view path) {
  if (pattern.back() != '*') return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.substr(0, pattern.size()) == pattern;
}

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

RouteMatch find_route(std::string_view method, std::string_view path) {
  // The request is about the whole server (RFC 9110, 9.3.7).
  if (path == "*") return RouteMatch{nullptr, 405, "GET, HEAD, POST, DELETE, OPTIONS"};
  RouteMatch match{nullptr, 404, ""};
  for (const Route& route : kRoutes) {
    if (!matches(route.path, path)) continue;
    if (const auto* const left_out = std::get_if<LeftOut>(&route.answer)) {
      match.left_out = left_out->module;
      continue;
    }
    if (route.method == method || (route.method == "GET" && method == "HEAD")) return RouteMatch{&route, 200, ""};
    match.status = 405;
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += route.method;
    if (route.method == "GET") match.allow += ", HEAD";
  }
  // The root is a page for people, not a resource of the API: it can only be read.
  if (path == "/" && method != "OPTIONS") return RouteMatch{nullptr, 404, "", match.left_out};
  if (!match.allow.empty()) match.allow += ", OPTIONS";
  return match;
}

}  // namespace quire
