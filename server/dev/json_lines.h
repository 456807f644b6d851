// Subcommands that answer JSON line by line, for scripts that drive them. One thread at a time.
#pragma once

#include <functional>
#include <iosfwd>

#include "core/base/json/json_fwd.h"

namespace quire::dev {

using JsonLineHandler = std::function<Json(const Json& line)>;

// Answers each line of `in` that is not empty with one line of `out`, at once. A line that is not JSON, or not of the
// type that `answer` needs, is answered with {"error": ...}.
void answer_json_lines(std::istream& in, std::ostream& out, const JsonLineHandler& answer);

}  // namespace quire::dev
