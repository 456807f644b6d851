#include "server/wire/raw_head.h"

#include <algorithm>

#include "server/wire/characters.h"
#include "server/wire/request_target.h"

namespace quire {

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
