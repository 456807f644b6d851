// Errors as clients of OpenAI's API expect them: {"error":{"message","type","param","code"}}, code always a string. Any
// thread.
#pragma once

#include <string>

#include "core/base/result.h"

namespace quire {

int http_status(ErrorKind kind);
// OpenAI's name for the family of an HTTP status: "invalid_request_error", "server_error", ...
const char* error_type(int status);
// The code that stands for a kind where an error brings none.
const char* default_code(ErrorKind kind);
std::string error_body(const Error& error);
std::string error_body(int status, const std::string& code, const std::string& message, const std::string& param = {});

}  // namespace quire
