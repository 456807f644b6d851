#include "server/cli/tokenize.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/result.h"
#include "core/model/formats/files/model_path.h"
#include "core/model/formats/read_tokenizer.h"
#include "core/text/detokenizer.h"

namespace quire::cli {

namespace {

using nlohmann::json;

void show_tokens(const std::string& text, std::ostream& out, const Tokenizer& tokenizer,
                 const TokenizeOptions& options) {
  const auto ids = tokenizer.encode(text, options.add_special, options.parse_special);
  Detokenizer detokenizer(tokenizer, {.skip_special_tokens = false, .at_text_start = true});
  for (const TokenId id : ids) {
    const json piece = detokenizer.push(id);
    out << fmt::format("{:>8}  {}\n", id.value, piece.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  out << fmt::format("{} token{}\n", ids.size(), ids.size() == 1 ? "" : "s");
  out.flush();
}

}  // namespace

void add_tokenize(CLI::App& app, TokenLines answer_lines) {
  auto arguments = std::make_shared<TokenizeArguments>();
  CLI::App* command = app.add_subcommand("tokenize", "Show the tokens of a text: quire tokenize MODEL \"text\"");
  command->add_option("MODEL,--model", arguments->path, "GGUF file, or a folder with tokenizer.json")
      ->type_name("")
      ->required();
  command
      ->add_option("TEXT", arguments->text, R"(The text; without it, JSON lines {"text": ...} become {"ids": [...]})")
      ->type_name("");
  command->add_flag("--reverse", arguments->reverse, R"(JSON lines {"ids": [...]} become {"text": ...})");
  command->add_flag("--add-special", arguments->options.add_special,
                    "Add the tokens that the model's file puts around a text (BOS, EOS)");
  command->add_flag("--parse-special", arguments->options.parse_special,
                    "Read control tokens that are written out in the text as such");
  command->add_flag("--skip-special", arguments->options.skip_special, "Leave control tokens out of decoded text");
  command->callback([arguments, answer_lines = std::move(answer_lines)] {
    require_model_path(arguments->path);
    if (arguments->text && arguments->reverse) throw StartupError("tokenize: --reverse reads JSON lines, not TEXT");
    if (!arguments->text) return answer_lines(*arguments);
    show_tokens(*arguments->text, std::cout, *open_tokenizer(arguments->path), arguments->options);
  });
}

}  // namespace quire::cli
