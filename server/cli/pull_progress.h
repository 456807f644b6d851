// Downloads and shows the progress: a bar on a terminal, else a line of the log every few seconds. One thread at a
// time.
#pragma once

#include <string>

#include "server/hub/pull.h"

namespace quire::cli {

// Downloads `reference` (see ModelReference) unless it is in the cache. Throws StartupError. The module `hub`.
hub::CachedModel pull_with_progress(const std::string& reference);

// A line with the file, a bar, sizes, rate and remaining time.
std::string progress_text(const hub::PullProgress& progress, double bytes_per_second);

}  // namespace quire::cli
