#include "server/cli/downloads.h"

#include <unistd.h>

#include <cstdio>

#include "core/base/log.h"
#include "server/hub/pull.h"
#include "server/models/model_reference.h"
#include "server/modules/modules.h"
#include "server/serve.h"

namespace quire::cli {

void show_progress_line(const std::string& text, bool last) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r\033[K%s%s", text.c_str(), last ? "\n" : "");
  std::fflush(stderr);
}

namespace {

void fetch([[maybe_unused]] ModelOptions& model) {
  if constexpr (is_built(Module::kHub)) {
    if (model.hf.empty()) return;
    const hub::CachedModel found = pull_with_progress(model.hf);
    log::info("{} is {}", found.reference.text(), found.path.string());
    model.path = found.path;
  }
}

// A snapshot's folder is named by a commit, but clients name the repository.
void name_after_repository(ModelOptions& model) {
  if (model.hf.empty() || !model.alias.empty()) return;
  if (const auto reference = hub::parse_reference(model.hf)) model.alias = {reference->text()};
}

}  // namespace

void fetch_models(ServeOptions& options) {
  fetch(options.model);
  name_after_repository(options.model);
  for (ModelEntry& entry : options.models)
    fetch(entry.model);
}

void keep_fetched_paths(const ServeOptions& current, ServeOptions& next) {
  if (next.model.hf == current.model.hf && !next.model.hf.empty()) next.model.path = current.model.path;
  name_after_repository(next.model);
  for (ModelEntry& entry : next.models) {
    for (const ModelEntry& known : current.models) {
      if (!entry.model.hf.empty() && entry.model.hf == known.model.hf) entry.model.path = known.model.path;
    }
  }
}

}  // namespace quire::cli
