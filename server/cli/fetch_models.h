// Models that a configuration names by a hub's repository. One thread at a time.
#pragma once

#include "server/serve.h"

namespace quire::cli {

// Downloads models that are not in the cache, and sets their paths. Throws StartupError.
void fetch_models(ServeOptions& options);

// Gives models of `next` that are named as in `current` the paths of those, without asking a hub.
void keep_fetched_paths(const ServeOptions& current, ServeOptions& next);

}  // namespace quire::cli
