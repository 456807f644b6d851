// MultipartReader: a body of type multipart/form-data, taken piece by piece (RFC 7578), so that a file in it never has
// to be in memory. One thread at a time. Invariant: it holds no more than a part's head and a delimiter.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace quire {

// The boundary in a Content-Type; nullopt unless it is multipart/form-data with a valid one.
std::optional<std::string> multipart_boundary(std::string_view content_type);

struct MultipartPiece {
  bool begins_part = false;
  std::string name;                     // set if this piece begins a part
  std::optional<std::string> filename;  // also set then, if given
  std::string data;                     // content of the part that began last
};

class MultipartReader {
 public:
  explicit MultipartReader(const std::string& boundary) : delimiter_("\r\n--" + boundary) {}

  // Appends the pieces found in the bytes to `pieces`. Errors: 400 "invalid_multipart".
  Result<void> feed(std::string_view bytes, std::vector<MultipartPiece>& pieces);
  // Returns whether the last delimiter was read: further bytes are ignored.
  bool is_done() const { return state_ == State::kDone; }

 private:
  enum class State { kPreamble, kHead, kContent, kDone };

  // Each returns false if more bytes are needed.
  bool take_content(std::vector<MultipartPiece>& pieces);
  Result<bool> take_delimiter();
  Result<bool> take_head(std::vector<MultipartPiece>& pieces);

  const std::string delimiter_;
  State state_ = State::kPreamble;
  bool at_delimiter_ = false;  // the buffer begins with one
  std::string buffer_ = "\r\n";
  std::size_t num_parts_ = 0;
};

}  // namespace quire
