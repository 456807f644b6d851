#include "core/text/detokenizer.h"

#include "core/text/unicode.h"

namespace quire {

std::string Detokenizer::push(TokenId token) {
  if (options_.skip_special_tokens && tokenizer_.is_special(token)) return {};
  std::string_view bytes = tokenizer_.token_bytes(token);
  if (bytes.empty()) return {};
  if (!started_ && options_.at_text_start && tokenizer_.strips_leading_space() && bytes.front() == ' ') {
    bytes.remove_prefix(1);
  }
  started_ = true;
  pending_ += bytes;

  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const unicode::Decoded decoded = unicode::decode(rest);
    if (decoded.status == unicode::Status::kTruncated) break;
    text += decoded.status == unicode::Status::kValid ? rest.substr(0, decoded.length) : unicode::kReplacementUtf8;
    rest.remove_prefix(decoded.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  unicode::append_sanitized(text, pending_);
  pending_.clear();
  return text;
}

}  // namespace quire
