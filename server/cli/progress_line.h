// Rewrites a line of progress on stderr in place; silent if stderr is not a terminal. One thread at a time.
#pragma once

#include <string>

namespace quire::cli {

// `last`: the line is complete and stays.
void show_progress_line(const std::string& text, bool last);

}  // namespace quire::cli
