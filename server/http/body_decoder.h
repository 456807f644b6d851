// BodyDecoder: takes a request's body off the wire, by Content-Length or chunked (RFC 9112, 6 and 7). One thread at a
// time. Chunk extensions are checked and dropped; trailer fields are checked and dropped. Nothing is kept beyond
// `max_bytes`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/request_head.h"

namespace quire {

class BodyDecoder {
 public:
  BodyDecoder(const RequestHead& head, std::size_t max_bytes);

  // Appends what it decodes to `out` and returns how many bytes it took; fewer than given only when done() or
  // refused().
  std::size_t feed(std::string_view data, std::string& out);

  std::uint64_t num_decoded() const { return num_decoded_; }
  bool done() const { return state_ == State::kDone; }
  const std::optional<HttpRefusal>& refused() const { return refusal_; }

 private:
  enum class State {
    kLength,
    kSizeFirst,
    kSize,
    kExtensionBefore,
    kExtensionFirst,
    kExtensionName,
    kExtensionNameEnd,
    kExtensionValueFirst,
    kExtensionValue,
    kQuoted,
    kQuotedPair,
    kQuotedEnd,
    kSizeLf,
    kData,
    kDataCr,
    kDataLf,
    kTrailerStart,
    kTrailerName,
    kTrailerValue,
    kTrailerLf,
    kEndLf,
    kDone
  };

  std::size_t take_data(std::string_view data, std::string& out);
  void step(char c);
  void extension_byte(char c);
  void trailer_byte(char c);
  void end_trailer_name();
  void end_size_line();
  void expect(char c, char wanted, State next);
  void refuse(int status, const char* code, std::string message);

  State state_;
  std::uint64_t left_ = 0;  // bytes of the body or of this chunk still to come
  std::uint64_t num_decoded_ = 0;
  std::size_t max_bytes_;
  std::size_t overhead_ = 0;  // bytes of extensions and trailers
  int size_digits_ = 0;
  std::string trailer_name_;
  std::optional<HttpRefusal> refusal_;
};

}  // namespace quire
