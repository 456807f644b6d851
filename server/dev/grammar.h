// `quire-dev grammar`: compiles grammars and checks texts against them, one JSON object per line in and out, with the
// server's code. One thread at a time.
#pragma once

#include <iosfwd>
#include <memory>

#include "core/grammar/mask/vocabulary.h"

namespace quire::dev {

// Reads {"schema": …} (or "regex", "ebnf", "gbnf", "choice", "json_object") with "instances": [text, …] and writes
// {"compiled", "error", "pointer", "accepted": [bool, …], "compile_ms", "mask_us": {"median", "p99", "max", "count"}};
// with "times": true the last also has "all": [µs, …], in order.
// model: the vocabulary that masks are computed for; null: one token per byte. Returns the number of lines that could
// not be read as such a request.
int run_grammar_lines(std::istream& in, std::ostream& out, std::shared_ptr<const TokenVocabulary> model);

}  // namespace quire::dev
