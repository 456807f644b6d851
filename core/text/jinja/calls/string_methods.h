// The methods of Python's str, as tables by name. Immutable; any thread.
#pragma once

#include <span>

#include "core/text/jinja/values/builtins.h"

namespace quire::jinja {

std::span<const MethodEntry> string_case_methods();    // upper, title, strip, isdigit, center, ...
std::span<const MethodEntry> string_search_methods();  // split, find, replace, join, startswith, ...

}  // namespace quire::jinja
