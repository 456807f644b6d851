// The subcommands that read JSON lines from stdin and answer on stdout, and `inspect`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "core/model/loaded_model.h"
#include "core/model/tools/inspect.h"
#include "core/model/tools/models_page.h"
#include "kernels/registry.h"
#include "server/cli/commands.h"
#include "server/cli/cpu_flags.h"
#include "server/cli/grammar.h"
#include "server/cli/parse_tools.h"
#include "server/cli/render.h"
#include "server/cli/tokenize.h"

namespace quire::cli {

namespace {

struct InspectArguments {
  std::string path;
  BackendOptions backend;
};

}  // namespace

void add_architectures(CLI::App& app) {
  app.add_subcommand("architectures", "the model families that are served, as the page deploy/docs/models.md")
      ->callback([] { fmt::print("{}", models_page()); });
}

void add_inspect(CLI::App& app) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* inspect =
      app.add_subcommand("inspect", "a model's metadata, tensors, and the memory that serving it takes");
  inspect->add_option("model", arguments->path, "GGUF file or Hugging Face directory")->required();
  add_cpu_flags(*inspect, arguments->backend.cpu);
  inspect->callback([arguments] {
    const auto backend = create_backend(arguments->backend);
    fmt::print("{}", inspect_model(arguments->path, *backend, KvCacheOptions{}, ServingLimits{}, machine_memory()));
  });
}

void add_grammar(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  CLI::App* grammar = app.add_subcommand(
      "grammar", R"(structured output: {"schema":...,"instances":[...]} to {"compiled":...,"accepted":[...]})");
  grammar->add_option("--model,--tokenizer", *path,
                      "measure masks for this model's vocabulary (default: one token per byte)");
  grammar->callback([path] {
    std::shared_ptr<const TokenVocabulary> vocabulary;
    if (!path->empty()) vocabulary = std::make_shared<TokenVocabulary>(*open_tokenizer(*path));
    if (run_grammar_lines(std::cin, std::cout, vocabulary) > 0) throw CLI::RuntimeError(1);
  });
}

void add_render(CLI::App& app) {
  app.add_subcommand("render", R"(chat templates: {"template":...,"context":{...}} to {"text":...} or {"error":...})")
      ->callback([] { run_render(std::cin, std::cout); });
}

void add_parse_tools(CLI::App& app) {
  app.add_subcommand("parse-tools",
                     R"(a model's output: {"format" or "template":...,"tools":...,"text":...} to its message)")
      ->callback([] { run_parse_tools(std::cin, std::cout); });
}

void add_tokenize(CLI::App& app) {
  struct Arguments {
    std::string path;
    bool reverse = false;
    TokenizeOptions options;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* tokenize = app.add_subcommand("tokenize", R"(JSON lines {"text":...} to {"ids":[...]})");
  tokenize->add_option("--model", arguments->path, "GGUF file, or a folder with tokenizer.json")->required();
  tokenize->add_flag("--reverse", arguments->reverse, R"(from {"ids":[...]} to {"text":...})");
  tokenize->add_flag("--add-special", arguments->options.add_special,
                     "put what the model's file asks for around the text");
  tokenize->add_flag("--parse-special", arguments->options.parse_special, "take special tokens in the text as such");
  tokenize->add_flag("--skip-special", arguments->options.skip_special, "leave special tokens out of decoded text");
  tokenize->callback([arguments] {
    const auto tokenizer = open_tokenizer(arguments->path);
    const auto convert = arguments->reverse ? detokenize_lines : tokenize_lines;
    if (convert(std::cin, std::cout, *tokenizer, arguments->options) > 0) throw CLI::RuntimeError(1);
  });
}

}  // namespace quire::cli
