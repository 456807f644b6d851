// The work of `quire-dev render`: JSON lines {"template": ..., "context": {...}} to {"text": ...} or {"error": ...},
// with the engine the server uses. One thread at a time. Optional members of a line: "now" ("2025-07-10T12:00:00", what
// strftime_now reads), "trim_blocks" and "lstrip_blocks" (both true), "pieces" (true adds which parts of the text are
// trusted).
#pragma once

#include <iosfwd>

namespace quire::dev {

// Answers each line of `in` with one line of `out`; an unreadable line is answered with its error.
void run_render(std::istream& in, std::ostream& out);

}  // namespace quire::dev
