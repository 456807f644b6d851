// Text: a UTF-8 string in which each byte is marked trusted (written by the template or the server) or not (sent by a
// client). One thread at a time while it changes; any thread once shared as const. Invariant: marks_ has one mark per
// byte; a substring keeps the marks it had. Costs one more byte per byte of text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer.h"

namespace quire::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool trusted) : bytes_(std::move(bytes)), marks_(bytes_.size(), mark(trusted)) {}

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool trusted_at(std::size_t position) const { return marks_[position] != '\0'; }

  void append(const Text& other) {
    bytes_ += other.bytes_;
    marks_ += other.marks_;
  }
  void append(const Text& other, std::size_t position, std::size_t count) {
    bytes_.append(other.bytes_, position, count);
    marks_.append(other.marks_, position, count);
  }
  void append(std::string_view bytes, bool trusted) {
    bytes_ += bytes;
    marks_.append(bytes.size(), mark(trusted));
  }
  Text part(std::size_t position, std::size_t count = std::string::npos) const {
    Text result;
    result.append(*this, position, count);
    return result;
  }
  void clear() {
    bytes_.clear();
    marks_.clear();
  }
  // Maximal runs of one mark, in order.
  std::vector<TextPiece> pieces() const;

 private:
  static char mark(bool trusted) { return trusted ? '\1' : '\0'; }

  std::string bytes_;
  std::string marks_;
};

}  // namespace quire::jinja
