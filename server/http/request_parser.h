// RequestParser: one HTTP/1.1 request off the wire: Beast's parser behind check_raw_head(), so that nothing is read in
// one way here and in another by a proxy (RFC 9112). One thread at a time. Invariants: the head is parsed once it is
// whole; nothing is taken of the bytes behind the request; a body never exceeds its bound, nor its chunk extensions
// and trailer fields, which are checked and dropped, kMaxOverhead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/request_head.h"

namespace quire {

class RequestParser {
 public:
  static constexpr std::size_t kMaxOverhead = 16384;

  explicit RequestParser(std::size_t max_head_bytes);
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  // `input`: all that arrived and was not taken. Returns how many of its bytes are done with: the empty lines before a
  // request, and the head once it is whole.
  std::size_t feed_head(std::string_view input);
  // Whether a request has begun: an idle connection may send empty lines.
  bool started() const { return scanned_ > 0; }
  bool head_done() const { return beast_ != nullptr; }
  RequestHead take_head() { return std::move(head_); }

  // Before the body is read: refuses one that is longer.
  void limit_body(std::size_t max_bytes);
  // Appends what it decodes of `input` to `out` and returns how many bytes are done with.
  std::size_t feed_body(std::string_view input, std::string& out);
  std::uint64_t num_decoded() const;

  // Head and body were read.
  bool done() const;
  const std::optional<HttpRefusal>& refused() const { return refusal_; }

 private:
  class Beast;
  bool take_byte(std::string_view input);
  void parse_head(std::string_view head);
  void finish_head();
  void refuse(int status, const char* code, std::string message);

  std::size_t max_head_bytes_;
  std::size_t scanned_ = 0;     // bytes of the head that were looked at
  std::size_t line_begin_ = 0;  // of the line that they end in
  RequestHead head_;
  std::unique_ptr<Beast> beast_;  // from the end of the head
  std::optional<HttpRefusal> refusal_;
};

}  // namespace quire
