// `quire pull` and `quire models`: models of a hub in the cache that Hugging Face's own programs share.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "server/api/common/json.h"
#include "server/cli/commands.h"
#include "server/cli/downloads.h"
#include "server/hub/hub_cache.h"
#include "server/hub/pull.h"

namespace quire::cli {

namespace {

constexpr const char* kReferenceHelp =
    "OWNER/NAME[@REVISION][:QUANTISATION], such as Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0";

void list_as_json(const hub::HubCache& cache, const hub::CacheContent& content) {
  Json body{{"folder", cache.folder().string()}, {"models", Json::array()}, {"partial", Json::array()}};
  for (const hub::CachedModel& model : content.models) {
    body["models"].push_back({{"model", model.reference.text()},
                              {"revision", model.reference.revision},
                              {"commit", model.commit},
                              {"path", model.path.string()},
                              {"bytes", model.num_bytes},
                              {"complete", !model.path.empty()}});
  }
  for (const hub::PartialDownload& each : content.partial)
    body["partial"].push_back({{"repository", each.repository}, {"bytes", each.num_bytes}});
  fmt::print("{}\n", body.dump(2, ' ', false, Json::error_handler_t::replace));
}

void list_models(bool as_json) {
  const hub::HubCache cache(hub::read_environment().cache);
  const hub::CacheContent content = cache.content();
  if (as_json) return list_as_json(cache, content);
  if (content.models.empty() && content.partial.empty()) {
    return fmt::print("no models in {}; 'quire pull OWNER/NAME' downloads one\n", cache.folder().string());
  }
  std::size_t width = 5;
  for (const hub::CachedModel& model : content.models)
    width = std::max(width, model.reference.text().size());
  fmt::print("{:<{}}  {:>10}  {}\n", "MODEL", width, "SIZE", "COMMIT");
  for (const hub::CachedModel& model : content.models) {
    fmt::print("{:<{}}  {:>10}  {}\n", model.reference.text(), width,
               model.path.empty() ? "incomplete" : hub::size_text(model.num_bytes), model.commit.substr(0, 12));
  }
  for (const hub::PartialDownload& each : content.partial) {
    fmt::print("{}: {} of an unfinished download; 'quire pull' continues it\n", each.repository,
               hub::size_text(each.num_bytes));
  }
  fmt::print("in {}\n", cache.folder().string());
}

void remove_model(const std::string& text) {
  const auto model = hub::parse_reference(text);
  if (!model) throw StartupError(model.error().message);
  const auto freed = hub::HubCache(hub::read_environment().cache).remove(*model);
  if (!freed) throw StartupError(freed.error().message + "; 'quire models' lists what is there");
  fmt::print("{} is deleted: {} free\n", model->text(), hub::size_text(*freed));
}

}  // namespace

void add_pull(CLI::App& app) {
  const auto models = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("pull", "Download models of Hugging Face's hub, or of a mirror");
  command->add_option("MODEL", *models, kReferenceHelp)->type_name("")->required();
  command->footer(
      "Prints the path of each. Environment: HF_TOKEN (for private and gated models), HF_HUB_CACHE or HF_HOME (where "
      "models are kept), HF_ENDPOINT (a mirror), HF_HUB_OFFLINE=1 (the cache only).");
  command->callback([models] {
    for (const std::string& model : *models)
      fmt::print("{}\n", pull_with_progress(model).path.string());
  });
}

void add_models(CLI::App& app) {
  CLI::App* models = app.add_subcommand("models", "List the downloaded models, or delete one");
  models->require_subcommand(0, 1);
  const auto as_json = std::make_shared<bool>(false);
  models->add_flag("--json", *as_json, "Print the list as JSON");
  CLI::App* remove = models->add_subcommand("remove", "Delete a downloaded model from the cache");
  const auto model = std::make_shared<std::string>();
  remove->add_option("MODEL", *model, "As 'quire models' lists it; OWNER/NAME alone: all of the repository")
      ->type_name("")
      ->required();
  remove->callback([model] { remove_model(*model); });
  models->callback([models, as_json] {
    if (models->get_subcommands().empty()) list_models(*as_json);
  });
}

}  // namespace quire::cli
