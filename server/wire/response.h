// Response: a whole HTTP response before it is written. A failure gets its body later, in the error format of the API
// that was called; a document shared by all connections is not copied. Plain value; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "server/api/common/errors.h"
#include "server/wire/request_head.h"

namespace quire {

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<HeaderField> fields = {};  // further fields, with names as written
  std::optional<Failure> failure = {};   // replaces the body
  std::string_view document = {};        // replaces the body: bytes with the process's lifetime

  std::string_view content() const { return document.empty() ? std::string_view(body) : document; }
};

// Properties of every response to one request.
struct ResponseFraming {
  int minor_version = 1;
  bool keep_alive = true;
  std::string_view request_id;
  const std::vector<HeaderField>* fields = nullptr;  // further fields; null: none
  ErrorForm form = ErrorForm::kOpenAi;

  // Streams are chunked; for HTTP/1.0 they last until the connection closes.
  bool is_chunked() const { return minor_version == 1; }
};

const char* reason_phrase(int status);
Response error_response(const Error& error);
Response error_response(int status, const std::string& code, const std::string& message);
// Writes a failure's body and status in that API's error format; changes no other response.
void write_failure(Response& response, const ResponseFraming& framing);

// The response's head with Content-Length, up to and including the empty line.
std::string response_head(const Response& response, const ResponseFraming& framing);
// The head of a response whose content is sent separately.
std::string content_head(std::string_view content_type, std::int64_t num_bytes, const ResponseFraming& framing);
std::string stream_head(std::string_view content_type, const ResponseFraming& framing);
// Appends a piece of a stream, as a chunk if the framing is chunked.
void append_stream_part(std::string& out, std::string_view data, const ResponseFraming& framing);
// Appends the mark of a stream's end; HTTP/1.0 has none.
void append_stream_end(std::string& out, const ResponseFraming& framing);
inline constexpr const char* kEventStream = "text/event-stream; charset=utf-8";
inline constexpr const char* kLineStream = "application/x-ndjson";

}  // namespace quire
