#include "server/wire/request_syntax.h"

#include <algorithm>

#include "core/base/percent.h"
#include "core/text/unicode.h"

namespace quire {

bool is_token_char(char c) {
  if ((lowered(c) >= 'a' && lowered(c) <= 'z') || (c >= '0' && c <= '9')) return true;
  return c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_field_value_char(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return c == '\t' || (byte >= 0x20 && byte != 0x7f);
}

namespace {

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// Unreserved characters, sub-delims, those of `further`, and escapes.
bool is_uri_text(std::string_view text, std::string_view further) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '%') {
      if (!escaped_byte(text.substr(i))) return false;
      i += 2;
    } else if (!is_letter_or_digit(c) && std::string_view("-._~!$&'()*+,;=").find(c) == std::string_view::npos &&
               further.find(c) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

// [ userinfo "@" ] host [ ":" port ]; a request's URI must have a host.
bool is_authority(std::string_view text) {
  const std::size_t at = text.rfind('@');
  if (at != std::string_view::npos) {
    if (!is_uri_text(text.substr(0, at), ":")) return false;
    text.remove_prefix(at + 1);
  }
  return !text.empty() && text.front() != ':' && is_host_and_port(text);
}

bool is_scheme(std::string_view text) {
  return !text.empty() && lowered(text.front()) >= 'a' && lowered(text.front()) <= 'z' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return is_letter_or_digit(c) || std::string_view("+-.").find(c) != std::string_view::npos;
         });
}

// An answer may quote the path, so it must be text.
bool is_path_text(std::string_view path) {
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; };
  return unicode::is_valid(path) && std::none_of(path.begin(), path.end(), is_control);
}

}  // namespace

bool is_host_and_port(std::string_view text) {
  const std::size_t bracket = text.rfind(']');
  const std::size_t colon = text.find(':', bracket == std::string_view::npos ? 0 : bracket);
  const std::string_view host = text.substr(0, colon);
  if (colon != std::string_view::npos &&
      text.substr(colon + 1).find_first_not_of("0123456789") != std::string_view::npos) {
    return false;
  }
  if (host.empty() || host.front() != '[') return is_uri_text(host, "");
  return host.size() > 2 && host.back() == ']' && is_uri_text(host.substr(1, host.size() - 2), ":");
}

bool split_target(RequestHead& head) {
  std::string_view rest = head.target;
  if (rest.empty() || !std::all_of(rest.begin(), rest.end(), [](char c) { return c > ' ' && c < 0x7f; })) return false;
  if (rest == "*") {
    if (head.method != "OPTIONS" && head.method != "M-SEARCH") return false;
  } else if (rest.front() != '/') {
    const std::size_t scheme = rest.find("://");
    if (scheme == std::string_view::npos || !is_scheme(rest.substr(0, scheme))) return false;
    rest.remove_prefix(scheme + 3);
    const std::size_t authority = std::min(rest.find_first_of("/?#"), rest.size());
    if (!is_authority(rest.substr(0, authority))) return false;
    head.names_host = true;
    rest.remove_prefix(authority);
  }
  rest = rest.substr(0, rest.find('#'));
  const std::size_t question = rest.find('?');
  head.sent_path = rest.substr(0, question);
  if (question != std::string_view::npos) head.query = rest.substr(question + 1);
  if (head.sent_path.empty()) head.sent_path = "/";
  auto path = percent_decoded(head.sent_path);
  if (!path || !is_path_text(*path)) return false;
  head.path = *std::move(path);
  return true;
}

namespace {

constexpr std::string_view kLineEnd = "\r\n";

HttpRefusal bad_request(const char* code, const char* message) {
  return HttpRefusal{400, code, message};
}

// Checks the fields that determine a request's host and end.
class FramingCheck {
 public:
  explicit FramingCheck(bool is_http10) : is_http10_(is_http10) {}

  std::optional<HttpRefusal> field(std::string_view name, std::string_view value) {
    if (name == "host") return host(value);
    if (name == "content-length") return length(value);
    if (name == "transfer-encoding") return coding(lowered(value));
    return std::nullopt;
  }

 private:
  std::optional<HttpRefusal> host(std::string_view value) {
    if (++num_hosts_ > 1) return bad_request("invalid_host", "More than one Host header");
    if (!is_host_and_port(value)) return bad_request("invalid_host", "Host is no host with an optional port");
    return std::nullopt;
  }

  std::optional<HttpRefusal> length(std::string_view value) {
    if (++num_lengths_ > 1) return bad_request("invalid_content_length", "More than one Content-Length header");
    if (value.empty() || value.find_first_not_of("0123456789") != std::string_view::npos) {
      return bad_request("invalid_content_length", "Content-Length is not a number");
    }
    return both();
  }

  std::optional<HttpRefusal> coding(std::string_view value) {
    if (++num_codings_ > 1 || is_http10_) {
      return bad_request("invalid_transfer_encoding", is_http10_ ? "Transfer-Encoding in an HTTP/1.0 request"
                                                                 : "More than one Transfer-Encoding header");
    }
    if (value == kChunked) return both();
    // chunked frames the body, so it comes once and last (RFC 9112, 6.1).
    const std::size_t comma = value.rfind(',');
    if (comma == std::string_view::npos || trimmed(value.substr(comma + 1)) != kChunked ||
        value.substr(0, comma).find(kChunked) != std::string_view::npos) {
      return bad_request("invalid_transfer_encoding", "The last transfer coding must be chunked");
    }
    return HttpRefusal{501, "transfer_coding_unsupported", "Only the chunked transfer coding is served"};
  }

  std::optional<HttpRefusal> both() const {
    if (num_lengths_ == 0 || num_codings_ == 0) return std::nullopt;
    return bad_request("invalid_framing", "Content-Length and Transfer-Encoding in one request");
  }

  static constexpr std::string_view kChunked = "chunked";
  bool is_http10_;
  int num_hosts_ = 0;
  int num_lengths_ = 0;
  int num_codings_ = 0;
};

}  // namespace

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

std::optional<HttpRefusal> check_raw_head(std::string_view head) {
  const auto take_line = [&head] {
    const std::size_t end = std::min(head.find(kLineEnd), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + kLineEnd.size(), head.size()));
    return line;
  };
  FramingCheck framing(take_line().ends_with("/1.0"));
  for (std::string_view line = take_line(); !line.empty(); line = take_line()) {
    if (line.front() == ' ' || line.front() == '\t') {
      return bad_request("invalid_header", "A header field is folded over two lines");
    }
    const std::size_t colon = std::min(line.find(':'), line.size() - 1);
    auto refusal = framing.field(lowered(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
    if (refusal) return refusal;
  }
  return std::nullopt;
}

}  // namespace quire
