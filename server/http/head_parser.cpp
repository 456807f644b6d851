#include "server/http/head_parser.h"

#include <algorithm>
#include <array>
#include <functional>

#include "server/http/characters.h"
#include "server/http/request_target.h"

namespace quire {

namespace {

constexpr std::array<std::string_view, 35> kMethods = {
    "GET",    "HEAD",   "POST",   "PUT",    "DELETE", "OPTIONS",  "PATCH",     "TRACE",       "CONNECT",
    "COPY",   "LOCK",   "MKCOL",  "MOVE",   "UNLOCK", "SEARCH",   "PROPFIND",  "PROPPATCH",   "BIND",
    "REBIND", "UNBIND", "ACL",    "REPORT", "MERGE",  "NOTIFY",   "SUBSCRIBE", "UNSUBSCRIBE", "PURGE",
    "LINK",   "UNLINK", "SOURCE", "QUERY",  "PRI",    "CHECKOUT", "M-SEARCH",  "MKCALENDAR"};
constexpr std::array<std::string_view, 12> kRtspMethods = {"OPTIONS",  "DESCRIBE", "ANNOUNCE",      "SETUP",
                                                           "PLAY",     "PAUSE",    "TEARDOWN",      "GET_PARAMETER",
                                                           "REDIRECT", "RECORD",   "SET_PARAMETER", "FLUSH"};

template <class List>
bool contains(const List& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool is_alpha(char c) {
  return lowered(c) >= 'a' && lowered(c) <= 'z';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
    text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t'))
    text.remove_suffix(1);
  return text;
}

// Calls `visit` with each element of a comma-separated list, trimmed and in lower case.
void each_element(std::string_view list, const std::function<void(const std::string&)>& visit) {
  while (true) {
    const std::size_t comma = list.find(',');
    visit(lowered(trimmed(list.substr(0, comma))));
    if (comma == std::string_view::npos) return;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

void HeadParser::refuse(int status, const char* code, std::string message) {
  refusal_ = HttpRefusal{status, code, std::move(message)};
}

std::size_t HeadParser::feed(std::string_view data) {
  std::size_t taken = 0;
  while (taken < data.size() && !done() && !refusal_) {
    if (++num_bytes_ > max_bytes_) {
      const bool in_target = state_ == State::kTarget;
      refuse(in_target ? 414 : 431, in_target ? "uri_too_long" : "headers_too_large",
             "The request's head is longer than " + std::to_string(max_bytes_) + " bytes");
      break;
    }
    step(data[taken++]);
  }
  // Empty lines before a request line are not the start of a request: an idle connection may send them.
  if (state_ == State::kStart) num_bytes_ = 0;
  return taken;
}

void HeadParser::step(char c) {
  if (state_ < State::kFieldStart) {
    start_line_byte(c);
  } else {
    field_byte(c);
  }
}

void HeadParser::start_line_byte(char c) {
  switch (state_) {
    case State::kStart:
      if (c == '\r') {
        state_ = State::kStartLf;
        return;
      }
      state_ = State::kMethod;
      [[fallthrough]];
    case State::kMethod:
      if (c == ' ') return end_method();
      if ((c < 'A' || c > 'Z') && c != '-' && c != '_')
        return refuse(400, "invalid_method", "Malformed request method");
      if (head_.method.size() >= 24) return refuse(400, "invalid_method", "Unknown request method");
      head_.method += c;
      return;
    case State::kStartLf:
      if (c != '\n') return refuse(400, "invalid_line_ending", "Expected LF after CR");
      state_ = State::kStart;
      return;
    case State::kTarget:
      if (c == ' ') return end_target();
      // HTTP/0.9 has no version and no fields.
      if (c == '\r' && head_.method == "GET" && !head_.target.empty()) return refuse_version();
      if (c < 0x21 || c > 0x7e) return refuse(400, "invalid_target", "Invalid character in the request target");
      if (head_.target.empty() && c != '/' && c != '*' && !is_alpha(c)) {
        return refuse(400, "invalid_target", "The request target must be a path or an absolute URI");
      }
      head_.target += c;
      return;
    case State::kVersion: return version_byte(c);
    case State::kVersionCr:
      if (c != '\r') return refuse(400, "invalid_version", "Expected CRLF after the HTTP version");
      state_ = State::kVersionLf;
      return;
    case State::kVersionLf:
      if (c != '\n') return refuse(400, "invalid_line_ending", "Expected LF after CR");
      state_ = State::kFieldStart;
      return;
    default: return;
  }
}

void HeadParser::end_method() {
  if (!contains(kMethods, head_.method) && !contains(kRtspMethods, head_.method)) {
    return refuse(400, "invalid_method", "Unknown request method");
  }
  if (head_.method == "CONNECT" || head_.method == "PRI") {
    return refuse(400, "invalid_method", "The method " + head_.method + " is not served here");
  }
  state_ = State::kTarget;
}

void HeadParser::end_target() {
  if (head_.target.empty() || !split_target(head_)) {
    return refuse(400, "invalid_target", "The request target must be a path or an absolute URI");
  }
  state_ = State::kVersion;
}

void HeadParser::refuse_version() {
  refuse(505, "http_version_not_supported", "Only HTTP/1.1 and HTTP/1.0 are served");
}

void HeadParser::version_byte(char c) {
  version_ += c;
  const auto could_be = [&](std::string_view whole) { return whole.substr(0, version_.size()) == version_; };
  if (version_ == "HTTP/1.1" || version_ == "HTTP/1.0") {
    if (!contains(kMethods, head_.method)) return refuse(400, "invalid_method", "Unknown request method");
    head_.minor_version = c - '0';
    state_ = State::kVersionCr;
    return;
  }
  // Two other protocols share HTTP's request line; a request that is proper there gets the answer that says so.
  if ((version_ == "RTSP/1.0" && contains(kRtspMethods, head_.method)) ||
      (version_ == "ICE/1.0" && head_.method == "SOURCE")) {
    return refuse_version();
  }
  if (version_ != "RTSP/1.0" && version_ != "ICE/1.0" &&
      (could_be("HTTP/1.1") || could_be("HTTP/1.0") || could_be("RTSP/1.0") || could_be("ICE/1.0"))) {
    return;
  }
  refuse(400, "invalid_version", "Only HTTP/1.1 and HTTP/1.0 are served");
}

void HeadParser::field_byte(char c) {
  switch (state_) {
    case State::kFieldStart:
      if (c == '\r') {
        state_ = State::kHeadLf;
        return;
      }
      name_.clear();
      value_.clear();
      state_ = State::kName;
      [[fallthrough]];
    case State::kName:
      if (c == ':' && !name_.empty()) {
        state_ = State::kValue;
        return;
      }
      if (!is_token_char(c)) return refuse(400, "invalid_header", "Invalid character in a header field's name");
      name_ += lowered(c);
      return;
    case State::kValue:
      if (c == '\r') {
        state_ = State::kValueLf;
        return;
      }
      if (!is_field_value_char(c))
        return refuse(400, "invalid_header", "Invalid character in the value of '" + name_ + "'");
      value_ += c;
      return;
    case State::kValueLf:
    case State::kHeadLf:
      if (c != '\n') return refuse(400, "invalid_line_ending", "Expected LF after CR");
      if (state_ == State::kHeadLf) return end_head();
      state_ = State::kFieldStart;
      return end_field();
    default: return;
  }
}

void HeadParser::end_field() {
  const std::string_view value = trimmed(value_);
  if (name_ == "content-length") {
    note_content_length(value);
  } else if (name_ == "transfer-encoding") {
    note_transfer_encoding(value);
  } else if (name_ == "connection") {
    note_connection(value);
  } else if (name_ == "upgrade") {
    upgrade_ = lowered(value);
  } else if (name_ == "expect") {
    if (lowered(value) != "100-continue") return refuse(417, "expectation_failed", "Unknown expectation");
    head_.expects_continue = true;
  } else if (name_ == "host") {
    note_host(value);
  }
  if (head_.content_length && has_transfer_encoding_) {
    return refuse(400, "invalid_framing", "Content-Length and Transfer-Encoding in one request");
  }
  head_.fields.push_back(HeaderField{name_, std::string(value)});
}

void HeadParser::note_host(std::string_view value) {
  if (++num_hosts_ > 1) return refuse(400, "invalid_host", "More than one Host header");
  if (!is_host_and_port(value)) return refuse(400, "invalid_host", "Host is no host with an optional port");
  head_.names_host = true;
}

void HeadParser::note_content_length(std::string_view value) {
  if (head_.content_length) return refuse(400, "invalid_content_length", "More than one Content-Length header");
  std::uint64_t length = 0;
  for (const char c : value) {
    if (c < '0' || c > '9') return refuse(400, "invalid_content_length", "Content-Length is not a number");
    if (length > (std::uint64_t{1} << 58)) return refuse(400, "invalid_content_length", "Content-Length is too large");
    length = length * 10 + static_cast<std::uint64_t>(c - '0');
  }
  if (value.empty()) return refuse(400, "invalid_content_length", "Content-Length is empty");
  head_.content_length = length;
}

void HeadParser::note_transfer_encoding(std::string_view value) {
  has_transfer_encoding_ = true;
  each_element(value, [this](const std::string& coding) {
    const bool is_chunked = coding == "chunked";
    // chunked frames the message, so it comes once and last (RFC 9112, 6.1).
    if (coding.empty() || head_.chunked || !std::all_of(coding.begin(), coding.end(), is_token_char)) {
      refuse(400, "invalid_transfer_encoding", "Malformed Transfer-Encoding");
    }
    head_.chunked = is_chunked;
    other_coding_ = other_coding_ || !is_chunked;
  });
}

void HeadParser::note_connection(std::string_view value) {
  each_element(value, [this](const std::string& option) {
    says_close_ = says_close_ || option == "close";
    says_keep_alive_ = says_keep_alive_ || option == "keep-alive";
    says_upgrade_ = says_upgrade_ || option == "upgrade";
  });
}

void HeadParser::end_head() {
  if (has_transfer_encoding_ && !head_.chunked) {
    return refuse(400, "invalid_transfer_encoding", "The last transfer coding must be chunked");
  }
  if (has_transfer_encoding_ && head_.minor_version == 0) {
    return refuse(400, "invalid_transfer_encoding", "Transfer-Encoding in an HTTP/1.0 request");
  }
  if (other_coding_) return refuse(501, "transfer_coding_unsupported", "Only the chunked transfer coding is served");
  // An offer of h2c may be ignored and common Java clients always make it; any other protocol the client will expect to
  // speak.
  if (says_upgrade_ && !upgrade_.empty() && upgrade_ != "h2c") {
    return refuse(400, "upgrade_unsupported", "No protocol upgrade is served");
  }
  head_.keep_alive = !says_close_ && (head_.minor_version == 1 || says_keep_alive_);
  state_ = State::kDone;
}

}  // namespace quire
