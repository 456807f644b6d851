#include "server/http/body_decoder.h"

#include <algorithm>

#include "server/http/characters.h"

namespace quire {

namespace {

// Extensions and trailers carry nothing that is used; this is room for a proxy's signature.
constexpr std::size_t kMaxOverhead = 16384;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

BodyDecoder::BodyDecoder(const RequestHead& head, std::size_t max_bytes) : max_bytes_(max_bytes) {
  left_ = head.content_length.value_or(0);
  state_ = head.chunked ? State::kSizeFirst : (left_ == 0 ? State::kDone : State::kLength);
  if (left_ > max_bytes_)
    refuse(413, "request_too_large", "The body is longer than " + std::to_string(max_bytes_) + " bytes");
}

void BodyDecoder::refuse(int status, const char* code, std::string message) {
  refusal_ = HttpRefusal{status, code, std::move(message)};
}

std::size_t BodyDecoder::feed(std::string_view data, std::string& out) {
  std::size_t taken = 0;
  while (taken < data.size() && !done() && !refusal_) {
    if (state_ == State::kLength || state_ == State::kData) {
      taken += take_data(data.substr(taken), out);
    } else {
      step(data[taken++]);
    }
  }
  return taken;
}

std::size_t BodyDecoder::take_data(std::string_view data, std::string& out) {
  const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(left_, data.size()));
  out.append(data.substr(0, count));
  left_ -= count;
  num_decoded_ += count;
  if (left_ == 0) state_ = state_ == State::kLength ? State::kDone : State::kDataCr;
  return count;
}

void BodyDecoder::expect(char c, char wanted, State next) {
  if (c != wanted) return refuse(400, "invalid_chunk", "A chunk's line does not end with CRLF");
  state_ = next;
}

void BodyDecoder::step(char c) {
  switch (state_) {
    case State::kSizeFirst:
    case State::kSize: {
      const int digit = hex_digit(c);
      if (digit >= 0) {
        if (++size_digits_ > 15) return refuse(400, "invalid_chunk", "A chunk's size is too large");
        left_ = left_ * 16 + static_cast<std::uint64_t>(digit);
        state_ = State::kSize;
        return;
      }
      if (state_ == State::kSize && (c == ';' || c == ' ' || c == '\t')) {
        state_ = c == ';' ? State::kExtensionFirst : State::kExtensionBefore;
        return;
      }
      if (state_ == State::kSize && c == '\r') {
        state_ = State::kSizeLf;
        return;
      }
      return refuse(400, "invalid_chunk", "Invalid character in a chunk's size");
    }
    case State::kSizeLf: expect(c, '\n', State::kData); return end_size_line();
    case State::kDataCr: return expect(c, '\r', State::kDataLf);
    case State::kDataLf: return expect(c, '\n', State::kSizeFirst);
    case State::kEndLf: return expect(c, '\n', State::kDone);
    default: break;
  }
  if (++overhead_ > kMaxOverhead) return refuse(431, "headers_too_large", "Too many chunk extensions or trailers");
  if (state_ >= State::kTrailerStart) return trailer_byte(c);
  extension_byte(c);
}

void BodyDecoder::end_size_line() {
  if (refusal_) return;
  size_digits_ = 0;
  if (left_ == 0) {
    state_ = State::kTrailerStart;
  } else if (left_ + num_decoded_ > max_bytes_) {
    refuse(413, "request_too_large", "The body is longer than " + std::to_string(max_bytes_) + " bytes");
  }
}

// chunk-ext = *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] ).
void BodyDecoder::extension_byte(char c) {
  const bool in_name = state_ == State::kExtensionName || state_ == State::kExtensionNameEnd;
  const bool may_end =
      state_ == State::kExtensionName || state_ == State::kExtensionValue || state_ == State::kQuotedEnd;
  const bool may_go_on = may_end || in_name || state_ == State::kExtensionBefore;
  const bool blank = c == ' ' || c == '\t';
  if (may_go_on && (c == ';' || blank)) {
    state_ = c == ';' ? State::kExtensionFirst : (in_name ? State::kExtensionNameEnd : State::kExtensionBefore);
    return;
  }
  if (may_end && c == '\r') {
    state_ = State::kSizeLf;
    return;
  }
  if (in_name && c == '=') {
    state_ = State::kExtensionValueFirst;
    return;
  }
  switch (state_) {
    case State::kExtensionFirst:
      if (blank) return;
      if (!is_token_char(c)) break;
      state_ = State::kExtensionName;
      return;
    case State::kExtensionName:
    case State::kExtensionValue:
      if (!is_token_char(c)) break;
      return;
    case State::kExtensionValueFirst:
      if (blank) return;
      if (c != '"' && !is_token_char(c)) break;
      state_ = c == '"' ? State::kQuoted : State::kExtensionValue;
      return;
    case State::kQuoted:
      if (!is_field_value_char(c)) break;
      state_ = c == '"' ? State::kQuotedEnd : (c == '\\' ? State::kQuotedPair : State::kQuoted);
      return;
    case State::kQuotedPair:
      if (!is_field_value_char(c)) break;
      state_ = State::kQuoted;
      return;
    default: break;
  }
  refuse(400, "invalid_chunk", "Invalid character in a chunk extension");
}

// What frames or routes a message cannot come behind it (RFC 9110, 6.5.1).
void BodyDecoder::end_trailer_name() {
  if (trailer_name_ == "content-length" || trailer_name_ == "transfer-encoding" || trailer_name_ == "host") {
    return refuse(400, "invalid_trailer", "'" + trailer_name_ + "' cannot be a trailer field");
  }
  state_ = State::kTrailerValue;
}

void BodyDecoder::trailer_byte(char c) {
  switch (state_) {
    case State::kTrailerStart:
      if (c == '\r') {
        state_ = State::kEndLf;
        return;
      }
      trailer_name_.clear();
      [[fallthrough]];
    case State::kTrailerName:
      if (c == ':' && !trailer_name_.empty()) return end_trailer_name();
      if (!is_token_char(c)) break;
      trailer_name_ += lowered(c);
      state_ = State::kTrailerName;
      return;
    case State::kTrailerValue:
      if (c == '\r') {
        state_ = State::kTrailerLf;
        return;
      }
      if (!is_field_value_char(c)) break;
      return;
    case State::kTrailerLf:
      if (c != '\n') break;
      state_ = State::kTrailerStart;
      return;
    default: break;
  }
  refuse(400, "invalid_trailer", "Malformed trailer field");
}

}  // namespace quire
