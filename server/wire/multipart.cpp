#include "server/wire/multipart.h"

#include <algorithm>

#include "core/base/ascii.h"
#include "server/wire/request_syntax.h"

namespace quire {

namespace {

constexpr std::size_t kMaxBoundary = 70;  // RFC 2046
constexpr std::size_t kMaxPartHead = 8192;
constexpr std::size_t kMaxParts = 64;

tl::unexpected<Error> bad_form(std::string message) {
  return invalid("The body is no valid multipart/form-data: " + message, "", "invalid_multipart");
}

// Takes a parameter's value, a token or a quoted string, from the beginning of `text`. Only quotes and backslashes are
// escapes, because browsers send the backslashes of names unescaped.
std::string take_value(std::string_view& text) {
  std::string value;
  if (!text.starts_with('"')) {
    const std::string_view token = text.substr(0, text.find(';'));
    text.remove_prefix(token.size());
    return std::string(trimmed(token));
  }
  text.remove_prefix(1);
  while (!text.empty() && text.front() != '"') {
    const bool is_escape = text.front() == '\\' && text.size() > 1 && (text[1] == '"' || text[1] == '\\');
    if (is_escape) text.remove_prefix(1);
    value += text.front();
    text.remove_prefix(1);
  }
  if (!text.empty()) text.remove_prefix(1);
  return value;
}

// Finds a parameter in a header such as "form-data; name="file"; filename="a.jsonl"".
std::optional<std::string> parameter(std::string_view header, std::string_view wanted) {
  std::size_t semicolon = header.find(';');
  while (semicolon != std::string_view::npos) {
    header.remove_prefix(semicolon + 1);
    const std::size_t equals = header.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string name = lowered(trimmed(header.substr(0, equals)));
    header.remove_prefix(equals + 1);
    header = header.substr(std::min(header.find_first_not_of(" \t"), header.size()));
    std::string value = take_value(header);
    if (name == wanted) return value;
    semicolon = header.find(';');
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> multipart_boundary(std::string_view content_type) {
  const std::string type = lowered(trimmed(content_type.substr(0, content_type.find(';'))));
  if (type != "multipart/form-data") return std::nullopt;
  auto boundary = parameter(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > kMaxBoundary) return std::nullopt;
  const bool is_printable =
      std::all_of(boundary->begin(), boundary->end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  return is_printable ? boundary : std::nullopt;
}

// Takes the content that cannot be the beginning of a delimiter.
bool MultipartReader::take_content(std::vector<MultipartPiece>& pieces) {
  const std::size_t found = buffer_.find(delimiter_);
  const std::size_t kept = std::min(delimiter_.size() - 1, buffer_.size());
  const std::size_t count = found == std::string::npos ? buffer_.size() - kept : found;
  if (state_ == State::kContent && count > 0) {
    MultipartPiece piece;
    piece.data = buffer_.substr(0, count);
    pieces.push_back(std::move(piece));
  }
  buffer_.erase(0, count);
  at_delimiter_ = found != std::string::npos;
  return at_delimiter_;
}

// The last delimiter is followed by "--", others by the end of their line.
Result<bool> MultipartReader::take_delimiter() {
  const std::string_view rest = std::string_view(buffer_).substr(delimiter_.size());
  if (rest.size() < 2) return false;
  if (rest.starts_with("--")) {
    state_ = State::kDone;
    buffer_.clear();
    return true;
  }
  const std::size_t end = rest.find("\r\n");
  if (end == std::string_view::npos && rest.size() < kMaxPartHead) return false;
  if (end == std::string_view::npos || !trimmed(rest.substr(0, end)).empty()) {
    return bad_form("text behind a boundary");
  }
  buffer_.erase(0, delimiter_.size() + end);  // the line's end stays, because a part may have no head
  state_ = State::kHead;
  at_delimiter_ = false;
  return true;
}

Result<bool> MultipartReader::take_head(std::vector<MultipartPiece>& pieces) {
  const std::size_t end = buffer_.find("\r\n\r\n");
  if (end == std::string::npos || end > kMaxPartHead) {
    if (buffer_.size() > kMaxPartHead) return bad_form("a part's head is too long");
    return false;
  }
  if (++num_parts_ > kMaxParts) return bad_form("too many parts");
  std::string_view head = std::string_view(buffer_).substr(0, end);
  std::optional<MultipartPiece> piece;
  while (!head.empty()) {
    head.remove_prefix(2);
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(line.size());
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return bad_form("a line of a part's head is no field");
    if (lowered(trimmed(line.substr(0, colon))) != "content-disposition") continue;
    const std::string_view value = line.substr(colon + 1);
    auto name = parameter(value, "name");
    if (!lowered(trimmed(value)).starts_with("form-data") || !name) return bad_form("a part without a name");
    piece = MultipartPiece{true, *std::move(name), parameter(value, "filename"), ""};
  }
  if (!piece) return bad_form("a part without a name");
  pieces.push_back(*std::move(piece));
  buffer_.erase(0, end + 4);
  state_ = State::kContent;
  return true;
}

Result<void> MultipartReader::feed(std::string_view bytes, std::vector<MultipartPiece>& pieces) {
  if (is_done()) return {};
  buffer_ += bytes;
  bool goes_on = true;
  while (goes_on && !is_done()) {
    if (!at_delimiter_ && state_ != State::kHead) {
      goes_on = take_content(pieces);
      continue;
    }
    const auto taken = at_delimiter_ ? take_delimiter() : take_head(pieces);
    if (!taken) return tl::make_unexpected(taken.error());
    goes_on = *taken;
  }
  return {};
}

}  // namespace quire
