// Downloads models that a configuration names by a hub's repository. One thread at a time.
#pragma once

#include "server/serve.h"

namespace quire::cli {

// Downloads models that are not in the cache, and sets their paths. Throws StartupError.
void fetch_models(ServeOptions& options);

// Copies the paths of `current` to models of `next` with the same names, without a request to a hub.
void keep_fetched_paths(const ServeOptions& current, ServeOptions& next);

}  // namespace quire::cli
