#include "server/reload.h"

#include <fmt/format.h>

#include "server/api/common/errors.h"
#include "server/api/common/json.h"

namespace quire {

namespace {

Error bad_configuration(const std::string& message) {
  return Error{ErrorKind::kInvalidRequest, message, "invalid_configuration", "", std::nullopt};
}

std::string names_of_fixed(const std::vector<ConfigChange>& changes) {
  std::string names;
  for (const ConfigChange& change : changes) {
    if (change.needs_restart) names += (names.empty() ? "" : ", ") + change.key;
  }
  return names;
}

}  // namespace

void Reloader::attach(Server& server, LiveModels& models) {
  const std::lock_guard lock(mutex_);
  server_ = &server;
  models_ = &models;
}

Result<std::string> Reloader::reload() {
  const std::lock_guard lock(mutex_);
  if (models_ == nullptr || !source_) return tl::make_unexpected(still_starting());
  notifier_.reloading();
  auto outcome = apply();
  notifier_.ready();
  ReloadCounts& counts = server_->state().reloads;
  ++counts.num_all;
  if (!outcome) ++counts.num_failed;
  counts.last_failed = !outcome;
  if (!outcome) log::error("reload refused, nothing was changed: {}", outcome.error().message);
  return outcome;
}

Result<std::string> Reloader::apply() {
  try {
    const ConfigProposal next = source_();
    const std::string fixed = names_of_fixed(next.changes);
    if (!fixed.empty()) return tl::make_unexpected(bad_configuration("a restart is needed to change " + fixed));
    // Whatever can fail comes before anything is changed.
    check_exposure(next.options.server);
    auto settings = std::make_shared<const Settings>(next.options.server);
    models_->reconfigure(model_specs(next.options), engine_options(next.options));
    server_->state().set_settings(std::move(settings));
    log::set_level(next.log.level);
    Json changed = Json::array();
    for (const ConfigChange& change : next.changes) {
      log::info("reload: {} is {} now, was {}", change.key, change.after, change.before);
      changed.push_back(change.key);
    }
    log::info("reloaded: {} settings changed; keys, certificates and templates were read again", next.changes.size());
    next.accept();
    return dump_json(Json{{"status", "reloaded"}, {"changed", std::move(changed)}});
  } catch (const StartupError& error) {
    return tl::make_unexpected(bad_configuration(error.what()));
  }
}

}  // namespace quire
