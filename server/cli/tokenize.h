// `quire tokenize`: a text's tokens, shown; JSON lines of texts to JSON lines of token ids, and back. One thread at a
// time. Invariant of JSON lines: one line out for each line in, in order; a line that cannot be honoured becomes
// {"error": ...}.
#pragma once

#include <iosfwd>

#include "core/text/tokenizer.h"

namespace quire::cli {

// Defaults for lines without the fields `add_special`, `parse_special` and `skip_special`.
struct TokenizeOptions {
  bool add_special = false;    // adds the model's tokens around the text (BOS, EOS)
  bool parse_special = false;  // parses control tokens written in the text
  bool skip_special = false;   // leaves control tokens out of decoded text
};

// Turns {"text": "..."} into {"ids": [...]}. Returns the number of errors.
std::size_t tokenize_lines(std::istream& in, std::ostream& out, const Tokenizer& tokenizer,
                           const TokenizeOptions& options);

// Turns {"ids": [...]} into {"text": "..."}. Returns the number of errors.
std::size_t detokenize_lines(std::istream& in, std::ostream& out, const Tokenizer& tokenizer,
                             const TokenizeOptions& options);

// Prints a line for each token, with its id and its text as a JSON string, then their number.
void show_tokens(const std::string& text, std::ostream& out, const Tokenizer& tokenizer,
                 const TokenizeOptions& options);

}  // namespace quire::cli
