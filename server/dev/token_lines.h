// JSON lines of `quire-dev tokenize`: texts to token ids, and back. One thread at a time. Invariant: one line out for
// each line in, in order; a line that cannot be honoured becomes {"error": ...}.
#pragma once

#include <cstddef>
#include <iosfwd>

#include "core/text/tokenizer.h"
#include "server/cli/tokenize.h"

namespace quire::dev {

// Turns {"text": "..."} into {"ids": [...]}. Returns the number of errors.
std::size_t tokenize_lines(std::istream& in, std::ostream& out, const Tokenizer& tokenizer,
                           const cli::TokenizeOptions& options);

// Turns {"ids": [...]} into {"text": "..."}. Returns the number of errors.
std::size_t detokenize_lines(std::istream& in, std::ostream& out, const Tokenizer& tokenizer,
                             const cli::TokenizeOptions& options);

}  // namespace quire::dev
