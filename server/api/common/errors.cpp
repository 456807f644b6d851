#include "server/api/common/errors.h"

#include "core/engine/request_queue.h"
#include "server/api/common/json.h"

namespace quire {

int http_status(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidRequest: return 400;
    case ErrorKind::kUnauthorized: return 401;
    case ErrorKind::kForbidden: return 403;
    case ErrorKind::kNotFound: return 404;
    case ErrorKind::kConflict: return 409;
    case ErrorKind::kTooLarge: return 413;
    case ErrorKind::kRateLimited: return 429;
    case ErrorKind::kInternal: return 500;
    case ErrorKind::kUnavailable: return 503;
    case ErrorKind::kTimeout: return 504;
    case ErrorKind::kNoMemory: return 507;
  }
  return 500;
}

const char* error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "service_unavailable_error";
    case 504: return "timeout_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

const char* default_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidRequest: return "invalid_value";
    case ErrorKind::kUnauthorized: return "invalid_api_key";
    case ErrorKind::kForbidden: return "permission_denied";
    case ErrorKind::kNotFound: return "not_found";
    case ErrorKind::kConflict: return "conflict";
    case ErrorKind::kTooLarge: return "request_too_large";
    case ErrorKind::kRateLimited: return "rate_limit_exceeded";
    case ErrorKind::kInternal: return "internal_error";
    case ErrorKind::kUnavailable: return "service_unavailable";
    case ErrorKind::kTimeout: return "deadline_exceeded";
    case ErrorKind::kNoMemory: return "insufficient_memory";
  }
  return "internal_error";
}

Error still_starting() {
  return Error{ErrorKind::kUnavailable, "The model is still loading", "model_loading", "", std::chrono::seconds(1)};
}

Error shutting_down() {
  return server_draining("The server is shutting down");
}

namespace {

const char* anthropic_type(int status) {
  switch (status) {
    case 413: return "request_too_large";
    case 503: return "overloaded_error";
    case 504: return error_type(status);
    default: return status >= 500 ? "api_error" : error_type(status);
  }
}

Json openai_error(const Failure& failure) {
  return Json{{"error",
               {{"message", failure.message},
                {"type", error_type(failure.status)},
                {"param", failure.param.empty() ? Json(nullptr) : Json(failure.param)},
                {"code", failure.code}}}};
}

// The message, for forms that have no other place for the field at fault.
std::string message_with_param(const Failure& failure) {
  const bool named = failure.message.find(failure.param) != std::string::npos;
  return named ? failure.message : failure.param + ": " + failure.message;
}

Json anthropic_error(const Failure& failure, const std::string& request_id) {
  return Json{
      {"type", "error"},
      {"error",
       {{"type", anthropic_type(failure.status)}, {"message", message_with_param(failure)}, {"code", failure.code}}},
      {"request_id", request_id}};
}

}  // namespace

Failure failure_of(const Error& error) {
  return Failure{http_status(error.kind), error.code.empty() ? default_code(error.kind) : error.code, error.message,
                 error.param};
}

ErrorForm error_form(std::string_view path) {
  if (path.starts_with("/v1/messages")) return ErrorForm::kAnthropic;
  return path.starts_with("/api/") ? ErrorForm::kOllama : ErrorForm::kOpenAi;
}

std::string error_body(const Failure& failure, ErrorForm form, const std::string& request_id) {
  switch (form) {
    case ErrorForm::kOpenAi: break;
    case ErrorForm::kAnthropic: return dump_json(anthropic_error(failure, request_id));
    case ErrorForm::kOllama: return dump_json(Json{{"error", message_with_param(failure)}});
  }
  return dump_json(openai_error(failure));
}

std::string error_body(const Error& error) {
  return dump_json(openai_error(failure_of(error)));
}

}  // namespace quire
