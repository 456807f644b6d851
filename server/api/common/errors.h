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
// The code that stands for a kind where an error brings none.
const char* default_code(ErrorKind kind);

// What nobody can be served with before all is loaded, and once the server drains.
Error still_starting();
Error shutting_down();

// What went wrong, before it is put into the form of the API that was asked.
struct Failure {
  int status = 500;  // HTTP's
  std::string code;
  std::string message;
  std::string param = {};
};
Failure failure_of(const Error& error);

enum class ErrorForm { kOpenAi, kAnthropic, kOllama };
// The form that the API at this path has.
ErrorForm error_form(std::string_view path);
std::string error_body(const Failure& failure, ErrorForm form, const std::string& request_id);
std::string error_body(const Error& error);  // OpenAI's

}  // namespace quire
