// Suggestions for misspelt names. Pure functions; any thread.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace quire {

// The name with the fewest letters to insert, delete, change or swap; the first of equals; empty if `names` is.
std::string_view nearest_name(std::string_view written, const std::vector<std::string_view>& names);

// The nearest name if it is likely what was meant: at most a third of the written letters differ.
std::optional<std::string_view> likely_name(std::string_view written, const std::vector<std::string_view>& names);

}  // namespace quire
