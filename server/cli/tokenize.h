// `quire tokenize`: a text's tokens, shown; JSON lines of texts to JSON lines of token ids, and back. One thread at a
// time. Invariant of JSON lines: one line out for each line in, in order; a line that cannot be honoured becomes
// {"error": ...}.
#pragma once

#include <iosfwd>

#include "core/text/tokenizer.h"

namespace quire::cli {

// A line may carry the fields `add_special`, `parse_special` and `skip_special` itself; these are for the others.
struct TokenizeOptions {
  bool add_special = false;    // adds the model's tokens around the text (BOS, EOS)
  bool parse_special = false;  // control tokens written in the text are those tokens
  bool skip_special = false;   // leave control tokens out of decoded text
};

// {"text": "..."} becomes {"ids": [...]}. Returns how many lines were errors.
std::size_t tokenize_lines(std::istream& in, std::ostream& out, const Tokenizer& tokenizer,
                           const TokenizeOptions& options);

// {"ids": [...]} becomes {"text": "..."}. Returns how many lines were errors.
std::size_t detokenize_lines(std::istream& in, std::ostream& out, const Tokenizer& tokenizer,
                             const TokenizeOptions& options);

// A line for each token, its id and its text as a JSON string, then their number.
void show_tokens(const std::string& text, std::ostream& out, const Tokenizer& tokenizer,
                 const TokenizeOptions& options);

}  // namespace quire::cli
