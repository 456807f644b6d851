// The commands of `quire-dev` that read JSON lines from stdin and answer on stdout, and `architectures`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "core/grammar/mask/vocabulary.h"
#include "core/model/formats/read_tokenizer.h"
#include "core/model/tools/inspect.h"
#include "server/cli/tokenize.h"
#include "server/dev/commands.h"

namespace quire::dev {

void add_architectures(CLI::App& app) {
  app.add_subcommand("architectures", "Print the supported model families, the page deploy/docs/models.md")
      ->callback([] { fmt::print("{}", models_page()); });
}

void add_grammar(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  CLI::App* grammar = app.add_subcommand(
      "grammar",
      R"(Compile schemas and check instances: {"schema":...,"instances":[...]} to {"compiled":...,"accepted":[...]})");
  grammar->add_option("--model,--tokenizer", *path,
                      "Measure masks for this model's vocabulary; default: one token per byte");
  grammar->callback([path] {
    std::shared_ptr<const TokenVocabulary> vocabulary;
    if (!path->empty()) vocabulary = std::make_shared<TokenVocabulary>(*open_tokenizer(*path));
    if (run_grammar_lines(std::cin, std::cout, vocabulary) > 0) throw CLI::RuntimeError(1);
  });
}

void add_render(CLI::App& app) {
  app.add_subcommand("render",
                     R"(Render chat templates: {"template":...,"context":{...}} to {"text":...} or {"error":...})")
      ->callback([] { run_render(std::cin, std::cout); });
}

void add_parse_tools(CLI::App& app) {
  app.add_subcommand(
         "parse-tools",
         R"(Parse tool calls in a model's output: {"format" or "template":...,"tools":...,"text":...} to its message)")
      ->callback([] { run_parse_tools(std::cin, std::cout); });
}

void add_tokenize(CLI::App& app) {
  cli::add_tokenize(app, [](const cli::TokenizeArguments& arguments) {
    const auto tokenizer = open_tokenizer(arguments.path);
    const auto convert = arguments.reverse ? detokenize_lines : tokenize_lines;
    if (convert(std::cin, std::cout, *tokenizer, arguments.options) > 0) throw CLI::RuntimeError(1);
  });
}

}  // namespace quire::dev
