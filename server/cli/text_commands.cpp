// The subcommands that read JSON lines from stdin and answer on stdout, and `inspect`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/model/formats/model_path.h"
#include "core/model/formats/read_tokenizer.h"
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
  InspectOptions shown;
  std::uint64_t adapter_bytes = 0;
  std::uint64_t gpu_bytes = 0;  // bytes of memory of the GPU to plan for; 0: this machine
  int num_gpus = 1;             // number of GPUs that compute the model together
  std::string draft_model;
  bool as_json = false;
};

void inspect(InspectArguments& arguments) {
  require_model_path(arguments.path);
  const bool is_planned = arguments.gpu_bytes > 0;
  if (is_planned) arguments.backend.device = "cpu";  // sizes are planned for a GPU
  if (!is_planned) arguments.backend.tensor_parallel = arguments.num_gpus;
  const auto backend = create_backend(arguments.backend);
  const MachineMemory machine = is_planned ? planned_gpu(arguments.gpu_bytes) : device_memory(arguments.backend);
  if (is_planned) arguments.shown.device = machine.limited_by;
  ServingLimits limits;
  limits.adapter_bytes = arguments.adapter_bytes;
  limits.num_ranks = arguments.num_gpus;
  limits.is_device = is_planned;
  if (arguments.as_json) {
    return fmt::print("{}", inspect_model_as_json(arguments.path, *backend, KvCacheOptions{}, limits, machine,
                                                  arguments.draft_model, arguments.shown.device));
  }
  fmt::print("{}", inspect_model(arguments.path, *backend, KvCacheOptions{}, limits, machine, arguments.shown,
                                 arguments.draft_model));
}

}  // namespace

void add_architectures(CLI::App& app) {
  app.add_subcommand("architectures", "Print the supported model families, the page deploy/docs/models.md")
      ->callback([] { fmt::print("{}", models_page()); });
}

void add_inspect(CLI::App& app) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* inspect_command =
      app.add_subcommand("inspect", "Describe a model: what it is, and the memory that serving it takes");
  inspect_command->add_option("MODEL", arguments->path, "GGUF file or Hugging Face directory")
      ->type_name("")
      ->required();
  inspect_command->add_flag("--metadata", arguments->shown.metadata, "List all keys of the file's metadata");
  inspect_command->add_flag("--tensors", arguments->shown.tensors, "List all tensors with type, shape and size");
  inspect_command
      ->add_option("--adapter-memory", arguments->adapter_bytes, "Plan for a model with so much memory for adapters")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(false));
  inspect_command
      ->add_option("--device-memory", arguments->gpu_bytes,
                   "Plan for a GPU with so much memory, which need not be here")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(false));
  inspect_command
      ->add_option("--tensor-parallel-size", arguments->num_gpus,
                   "Plan for so many GPUs that compute the model together")
      ->type_name("N")
      ->check(CLI::Range(1, 8));
  inspect_command->add_option("--draft-model", arguments->draft_model,
                              "A model that drafts for it, in the memory plan");
  inspect_command->add_flag("--json", arguments->as_json, "Print all of it as a JSON object");
  add_cpu_flags(*inspect_command, arguments->backend.cpu);
  inspect_command->callback([arguments] { inspect(*arguments); });
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

namespace {

struct TokenizeArguments {
  std::string path;
  std::optional<std::string> text;
  bool reverse = false;
  TokenizeOptions options;
};

void tokenize(const TokenizeArguments& arguments) {
  require_model_path(arguments.path);
  const auto tokenizer = open_tokenizer(arguments.path);
  if (arguments.text && arguments.reverse) throw StartupError("tokenize: --reverse reads JSON lines, not TEXT");
  if (arguments.text) return show_tokens(*arguments.text, std::cout, *tokenizer, arguments.options);
  const auto convert = arguments.reverse ? detokenize_lines : tokenize_lines;
  if (convert(std::cin, std::cout, *tokenizer, arguments.options) > 0) throw CLI::RuntimeError(1);
}

}  // namespace

void add_tokenize(CLI::App& app) {
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
  command->callback([arguments] { tokenize(*arguments); });
}

}  // namespace quire::cli
