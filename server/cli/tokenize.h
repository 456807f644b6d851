// `quire tokenize`: a text's tokens, shown. JSON lines are answered by `quire-dev tokenize`. One thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace quire::cli {

// Defaults for lines without the fields `add_special`, `parse_special` and `skip_special`.
struct TokenizeOptions {
  bool add_special = false;    // adds the model's tokens around the text (BOS, EOS)
  bool parse_special = false;  // parses control tokens written in the text
  bool skip_special = false;   // leaves control tokens out of decoded text
};

struct TokenizeArguments {
  std::string path;
  std::optional<std::string> text;  // absent: JSON lines on standard input
  bool reverse = false;             // JSON lines of ids to texts
  TokenizeOptions options;
};

// Answers JSON lines on standard output.
using TokenLines = std::function<void(const TokenizeArguments& arguments)>;

// Adds the command `tokenize`.
void add_tokenize(CLI::App& app, TokenLines answer_lines);

}  // namespace quire::cli
