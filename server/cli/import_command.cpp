// `quire import ollama`: serves the models in Ollama's store, in place.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "server/cli/commands.h"
#include "server/hub/ollama_store.h"

namespace quire::cli {

namespace {

void import_ollama(const std::string& named, const std::string& wanted) {
  const std::filesystem::path folder = named.empty() ? hub::ollama_folder() : std::filesystem::path(named);
  if (folder.empty()) throw StartupError("no store of Ollama's is here: name its folder with --store or OLLAMA_MODELS");
  const hub::OllamaStore store = hub::read_ollama_store(folder);
  for (const std::string& complaint : store.complaints)
    fmt::print(stderr, "left out: {}\n", complaint);
  if (wanted.empty()) {
    if (store.models.empty()) throw StartupError(fmt::format("there is no model in '{}'", folder.string()));
    return fmt::print("{}", hub::serving_configuration(store.models));
  }
  const auto model = std::ranges::find_if(store.models, [&](const hub::OllamaModel& each) {
    return each.name == wanted || each.name == wanted + ":latest";
  });
  if (model == store.models.end()) {
    throw StartupError(
        fmt::format("'{}' is not in '{}'; 'quire import ollama' lists what is there", wanted, folder.string()));
  }
  fmt::print("{}\n", model->path.string());
}

}  // namespace

void add_import(CLI::App& app) {
  CLI::App* command = app.add_subcommand("import", "Serve models of another program's store, without a copy");
  command->require_subcommand(1);
  CLI::App* ollama =
      command->add_subcommand("ollama", "Print a configuration that serves Ollama's models, or one's path");
  const auto wanted = std::make_shared<std::string>();
  const auto folder = std::make_shared<std::string>();
  ollama->add_option("MODEL", *wanted, "Print the path of this model alone, such as llama3.2:1b")->type_name("");
  ollama->add_option("--store", *folder, "Ollama's folder of models (OLLAMA_MODELS, else that of this user or service)")
      ->type_name("FOLDER");
  ollama->footer(
      "quire import ollama > quire.yaml && quire serve --config quire.yaml serves all of them under Ollama's names: "
      "the "
      "first request loads a model, and five minutes without work release it. quire serve $(quire import ollama MODEL) "
      "serves one.");
  ollama->callback([wanted, folder] { import_ollama(*folder, *wanted); });
}

}  // namespace quire::cli
