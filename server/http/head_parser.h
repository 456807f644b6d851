// HeadParser: the strict reader of a request's head (RFC 9110, RFC 9112), byte by byte, so that a malformed byte is
// refused when it arrives and an incomplete head waits. One thread at a time. Stricter than the RFC's robustness
// clauses, because every lenience is a way to smuggle a request past a proxy: no bare LF or CR, no folded lines, no
// space around a field name, no repeated Content-Length, no Content-Length beside Transfer-Encoding.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/request_head.h"

namespace quire {

class HeadParser {
 public:
  explicit HeadParser(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // Reads up to the end of the head and returns how many bytes it took; fewer than given only when done() or refused().
  std::size_t feed(std::string_view data);

  bool started() const { return num_bytes_ > 0; }
  bool done() const { return state_ == State::kDone; }
  const std::optional<HttpRefusal>& refused() const { return refusal_; }
  RequestHead take() { return std::move(head_); }

 private:
  enum class State {
    kStart,
    kStartLf,
    kMethod,
    kTarget,
    kVersion,
    kVersionCr,
    kVersionLf,
    kFieldStart,
    kName,
    kValue,
    kValueLf,
    kHeadLf,
    kDone
  };

  void step(char c);
  void start_line_byte(char c);
  void field_byte(char c);
  void end_method();
  void end_target();
  void version_byte(char c);
  void refuse_version();
  void end_field();
  void note_host(std::string_view value);
  void note_content_length(std::string_view value);
  void note_transfer_encoding(std::string_view value);
  void note_connection(std::string_view value);
  void end_head();
  void refuse(int status, const char* code, std::string message);

  std::size_t max_bytes_;
  std::size_t num_bytes_ = 0;
  State state_ = State::kStart;
  std::string version_;
  std::string name_;
  std::string value_;
  std::string upgrade_;
  int num_hosts_ = 0;
  bool has_transfer_encoding_ = false;
  bool other_coding_ = false;
  bool says_close_ = false;
  bool says_keep_alive_ = false;
  bool says_upgrade_ = false;
  RequestHead head_;
  std::optional<HttpRefusal> refusal_;
};

}  // namespace quire
