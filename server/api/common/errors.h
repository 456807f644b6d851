// Errors as clients expect them. OpenAI's: {"error":{"message","type","param","code"}}, code always a string.
// Anthropic's: {"type":"error","error":{"type","message"},"request_id"}. Ollama's: {"error":message}. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"

namespace quire {

int http_status(ErrorKind kind);
// OpenAI's name for the family of an HTTP status: "invalid_request_error", "server_error", ...
const char* error_type(int status);
// The code for a kind of error that has no code of its own.
const char* default_code(ErrorKind kind);

// Refusals before everything is loaded, and while the server drains.
Error still_starting();
Error shutting_down();

// An error before it takes the form of the API that was called.
struct Failure {
  int status = 500;  // HTTP's
  std::string code;
  std::string message;
  std::string param = {};
};
Failure failure_of(const Error& error);

enum class ErrorForm { kOpenAi, kAnthropic, kOllama };
// The error form of the API at this path.
ErrorForm error_form(std::string_view path);
std::string error_body(const Failure& failure, ErrorForm form, const std::string& request_id);
std::string error_body(const Error& error);  // OpenAI's

}  // namespace quire
