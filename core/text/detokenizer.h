// Detokenizer: the text of one generation, token by token. One thread at a time.
// Invariant: each returned text is valid UTF-8 without split characters; all of them with finish() are the whole text
// (bytes that never become valid UTF-8 come out as U+FFFD).
#pragma once

#include <string>
#include <string_view>

#include "core/text/tokenizer.h"

namespace quire {

struct DetokenizerOptions {
  bool skip_special_tokens = true;
  bool at_text_start = false;  // decoding a text from its beginning: a dummy prefix space is dropped
};

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options) : tokenizer_(tokenizer), options_(options) {}

  std::string push(TokenId token);  // the text that became complete
  std::string finish();             // the rest, e.g. an incomplete character as U+FFFD

 private:
  const Tokenizer& tokenizer_;
  DetokenizerOptions options_;
  std::string pending_;  // an incomplete character's bytes
  bool started_ = false;
};

}  // namespace quire
