#include "server/wire/response.h"

#include <charconv>
#include <ctime>

namespace quire {

namespace {

// RFC 9110's date; formatting it once a second per thread keeps it off every response.
std::string_view http_date() {
  thread_local std::time_t formatted_at = 0;
  thread_local char text[64] = "";
  const std::time_t now = std::time(nullptr);
  if (now != formatted_at) {
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    formatted_at = now;
  }
  return text;
}

std::string common_head(int status, const ResponseFraming& framing, const std::vector<HeaderField>& fields) {
  std::string head = framing.minor_version == 0 ? "HTTP/1.0 " : "HTTP/1.1 ";
  head += std::to_string(status);
  head += ' ';
  head += reason_phrase(status);
  head += "\r\nServer: quire\r\nDate: ";
  head += http_date();
  if (!framing.request_id.empty()) {
    head += "\r\nX-Request-Id: ";
    head += framing.request_id;
    // Anthropic's clients read the id from this field.
    if (framing.form == ErrorForm::kAnthropic) head.append("\r\nRequest-Id: ").append(framing.request_id);
  }
  if (!framing.keep_alive) {
    head += "\r\nConnection: close";
  } else if (framing.minor_version == 0) {
    head += "\r\nConnection: keep-alive";
  }
  for (const auto* list : {&fields, framing.fields}) {
    if (list == nullptr) continue;
    for (const HeaderField& field : *list)
      head += "\r\n" + field.name + ": " + field.value;
  }
  head += "\r\n";
  return head;
}

}  // namespace

const char* reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 426: return "Upgrade Required";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 507: return "Insufficient Storage";
    default: return "Unknown";
  }
}

Response error_response(const Error& error) {
  Response response;
  response.failure = failure_of(error);
  response.status = response.failure->status;
  if (error.retry_after) response.fields.push_back({"Retry-After", std::to_string(error.retry_after->count())});
  if (response.status == 401) response.fields.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

Response error_response(int status, const std::string& code, const std::string& message) {
  Response response;
  response.status = status;
  response.failure = Failure{status, code, message};
  return response;
}

void write_failure(Response& response, const ResponseFraming& framing) {
  if (!response.failure) return;
  response.body = error_body(*response.failure, framing.form, std::string(framing.request_id));
}

std::string response_head(const Response& response, const ResponseFraming& framing) {
  std::string head = common_head(response.status, framing, response.fields);
  if (response.status != 204 && response.status != 304) {
    head += "Content-Type: " + response.content_type +
            "\r\nContent-Length: " + std::to_string(response.content().size()) + "\r\n";
  }
  return head + "\r\n";
}

std::string content_head(std::string_view content_type, std::int64_t num_bytes, const ResponseFraming& framing) {
  std::string head = common_head(200, framing, {});
  head += "Content-Type: ";
  head += content_type;
  return head + "\r\nContent-Length: " + std::to_string(num_bytes) + "\r\n\r\n";
}

std::string stream_head(std::string_view content_type, const ResponseFraming& framing) {
  std::string head = common_head(200, framing, {});
  head += "Content-Type: ";
  head += content_type;
  // Buffering proxies would hold the stream back.
  head += "\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
  if (framing.is_chunked()) head += "Transfer-Encoding: chunked\r\n";
  return head + "\r\n";
}

void append_stream_part(std::string& out, std::string_view data, const ResponseFraming& framing) {
  if (!framing.is_chunked()) {
    out.append(data);
    return;
  }
  char size[20];
  const auto [end, error] = std::to_chars(size, size + sizeof size, data.size(), 16);
  out.append(size, end).append("\r\n").append(data).append("\r\n");
}

void append_stream_end(std::string& out, const ResponseFraming& framing) {
  if (framing.is_chunked()) out += "0\r\n\r\n";
}

}  // namespace quire
