// Downloads of models, and the line of progress on stderr that they and other commands show. One thread at a time.
#pragma once

#include <string>

namespace quire {
struct ServeOptions;
}  // namespace quire

namespace quire::hub {
struct CachedModel;
struct PullProgress;
}  // namespace quire::hub

namespace quire::cli {

// Rewrites a line on stderr in place; silent if stderr is no terminal. `last`: the line is complete and stays.
void show_progress_line(const std::string& text, bool last);

// Downloads `reference` (see ModelReference) unless it is in the cache, with a bar on a terminal, else a line of the
// log every few seconds. Throws StartupError. Module: `hub`.
hub::CachedModel pull_with_progress(const std::string& reference);

// A line with the file, a bar, sizes, rate and remaining time.
std::string progress_text(const hub::PullProgress& progress, double bytes_per_second);

// Downloads models that are not in the cache, and sets their paths. Throws StartupError.
void fetch_models(ServeOptions& options);

// Copies the paths of `current` to models of `next` with the same names, without a request to a hub.
void keep_fetched_paths(const ServeOptions& current, ServeOptions& next);

}  // namespace quire::cli
