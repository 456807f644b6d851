// RequestParser: parses one HTTP/1.1 request with Beast's parser behind check_raw_head(), so that Quire and a proxy
// always read the same request (RFC 9112). One thread at a time. Invariants: the head is parsed once it is complete; no
// byte after the request is consumed; a body never exceeds its limit; chunk extensions and trailer fields are checked
// and dropped, and never exceed kMaxOverhead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/wire/request_head.h"

namespace quire {

class RequestParser {
 public:
  static constexpr std::size_t kMaxOverhead = 16384;

  explicit RequestParser(std::size_t max_head_bytes);
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  // `input`: all bytes that arrived and were not consumed. Returns the number of consumed bytes: the empty lines before
  // a request, and the head once it is complete.
  std::size_t feed_head(std::string_view input);
  // Returns whether a request has begun: an idle connection may send empty lines.
  bool started() const { return scanned_ > 0; }
  bool head_done() const { return beast_ != nullptr; }
  RequestHead take_head() { return std::move(head_); }

  // Sets the largest body accepted. To be called before the body is read.
  void limit_body(std::size_t max_bytes);
  // Decodes `input`, appends the result to `out` and returns the number of consumed bytes.
  std::size_t feed_body(std::string_view input, std::string& out);
  std::uint64_t num_decoded() const;

  // Returns whether head and body were read.
  bool done() const;
  const std::optional<HttpRefusal>& refused() const { return refusal_; }

 private:
  class Beast;
  bool take_byte(std::string_view input);
  void parse_head(std::string_view head);
  void finish_head();
  void refuse(int status, const char* code, std::string message);

  std::size_t max_head_bytes_;
  std::size_t scanned_ = 0;     // bytes of the head examined so far
  std::size_t line_begin_ = 0;  // start of the line being scanned
  RequestHead head_;
  std::unique_ptr<Beast> beast_;  // set at the end of the head
  std::optional<HttpRefusal> refusal_;
};

}  // namespace quire
