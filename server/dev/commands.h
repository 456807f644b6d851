// The commands of `quire-dev`: functions that add one to the command line (as server/cli/commands.h), and the work of
// those that read and write JSON lines with the server's own code. One thread at a time. Invariant: one line out for
// each line in, in order; a line that cannot be honoured becomes {"error": ...}.
#pragma once

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <memory>

#include "core/base/json/json_fwd.h"

namespace CLI {
class App;
}  // namespace CLI

namespace quire {
class TokenVocabulary;
class Tokenizer;
}  // namespace quire

namespace quire::cli {
struct TokenizeOptions;
}  // namespace quire::cli

namespace quire::dev {

void add_api(CLI::App& app);
void add_architectures(CLI::App& app);
void add_grammar(CLI::App& app);
void add_parse_tools(CLI::App& app);
void add_render(CLI::App& app);
void add_tokenize(CLI::App& app);

using JsonLineHandler = std::function<Json(const Json& line)>;

// Answers each line of `in` that is not empty with one line of `out`, at once. A line that is not JSON, or not of the
// type that `answer` needs, is answered with {"error": ...}.
void answer_json_lines(std::istream& in, std::ostream& out, const JsonLineHandler& answer);

// Reads {"schema": …} (or "regex", "ebnf", "gbnf", "choice", "json_object") with "instances": [text, …] and writes
// {"compiled", "error", "pointer", "accepted": [bool, …], "compile_ms", "mask_us": {"median", "p99", "max", "count"}};
// with "times": true the last also has "all": [µs, …], in order.
// model: the vocabulary that masks are computed for; null: one token per byte. Returns the number of lines that could
// not be read as such a request.
int run_grammar_lines(std::istream& in, std::ostream& out, std::shared_ptr<const TokenVocabulary> model);

// Parses messages with the server's parsers. In: {"format": name or "template": source, "tools": [...], "text": ...,
// "chunks": n or [...]}. Out: {"content": ..., "reasoning_content": ..., "tool_calls": [{"id", "name", "arguments"}]}.
// Optional: "reasoning_format" ("none" leaves reasoning in the content; the default is "auto" with a template, "none"
// with a format), "generation_prompt" (rendered from "messages" and "enable_thinking" where absent), "tool_choice",
// "json_schema", "is_partial" (the text continues), "eager" (true with a template, false with a format: see
// output_parser.h).
void run_parse_tools(std::istream& in, std::ostream& out);

// Renders {"template": ..., "context": {...}} to {"text": ...}. Optional: "now" ("2025-07-10T12:00:00", what
// strftime_now reads), "trim_blocks" and "lstrip_blocks" (both true), "pieces" (true adds which parts of the text are
// trusted).
void run_render(std::istream& in, std::ostream& out);

// Turns {"text": "..."} into {"ids": [...]}. Returns the number of errors.
std::size_t tokenize_lines(std::istream& in, std::ostream& out, const Tokenizer& tokenizer,
                           const cli::TokenizeOptions& options);

// Turns {"ids": [...]} into {"text": "..."}. Returns the number of errors.
std::size_t detokenize_lines(std::istream& in, std::ostream& out, const Tokenizer& tokenizer,
                             const cli::TokenizeOptions& options);

}  // namespace quire::dev
