#include "server/api/errors.h"

#include "server/api/json.h"

namespace quire {

int http_status(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidRequest: return 400;
    case ErrorKind::kUnauthorized: return 401;
    case ErrorKind::kForbidden: return 403;
    case ErrorKind::kNotFound: return 404;
    case ErrorKind::kTooLarge: return 413;
    case ErrorKind::kRateLimited: return 429;
    case ErrorKind::kInternal: return 500;
    case ErrorKind::kUnavailable: return 503;
    case ErrorKind::kTimeout: return 504;
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
    case ErrorKind::kTooLarge: return "request_too_large";
    case ErrorKind::kRateLimited: return "rate_limit_exceeded";
    case ErrorKind::kInternal: return "internal_error";
    case ErrorKind::kUnavailable: return "service_unavailable";
    case ErrorKind::kTimeout: return "deadline_exceeded";
  }
  return "internal_error";
}

std::string error_body(int status, const std::string& code, const std::string& message, const std::string& param) {
  Json body;
  body["error"] = {{"message", message},
                   {"type", error_type(status)},
                   {"param", param.empty() ? Json(nullptr) : Json(param)},
                   {"code", code}};
  return dump_json(body);
}

std::string error_body(const Error& error) {
  return error_body(http_status(error.kind), error.code.empty() ? default_code(error.kind) : error.code, error.message,
                    error.param);
}

}  // namespace quire
