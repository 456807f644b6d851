// Result<T>: the value, or an Error fit for a client. Value types; any thread. An Error has the fields of every API's
// errors: its kind decides the HTTP status, code and param are OpenAI's.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace quire {

enum class ErrorKind {
  kInvalidRequest,  // 400
  kUnauthorized,    // 401
  kForbidden,       // 403
  kNotFound,        // 404
  kConflict,        // 409: not possible in the resource's current state
  kTooLarge,        // 413
  kRateLimited,     // 429
  kInternal,        // 500
  kUnavailable,     // 503
  kTimeout,         // 504: a deadline passed
  kNoMemory,        // 507: the request does not fit into memory
};

struct Error {
  ErrorKind kind = ErrorKind::kInvalidRequest;
  std::string message;
  std::string code;   // OpenAI-style string: "context_length_exceeded", "model_not_found", ...; may be empty
  std::string param;  // the offending field: "messages[0].content"; may be empty
  std::optional<std::chrono::seconds> retry_after = std::nullopt;
};

inline Error out_of_memory() {
  return {
      ErrorKind::kNoMemory, "The request needs more memory than there is. Please retry later.", "out_of_memory", {}};
}

// An error that is passed on without allocating; null: none.
using SharedError = std::shared_ptr<const Error>;

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> invalid(std::string message, std::string param = {}, std::string code = {}) {
  return tl::make_unexpected(
      Error{ErrorKind::kInvalidRequest, std::move(message), std::move(code), std::move(param), std::nullopt});
}

inline tl::unexpected<Error> failure(ErrorKind kind, std::string message, std::string code = {}) {
  return tl::make_unexpected(Error{kind, std::move(message), std::move(code), {}, std::nullopt});
}

// A bad configuration or model file: one line with the fault and the remedy. Thrown while starting, caught once in
// main: exit 2.
class StartupError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace quire
