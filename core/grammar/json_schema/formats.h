// The formats of JSON Schema as regular expressions. Any thread. Sources: RFC 3339 (dates), 5321 (mail), 1123 (host
// names), 2673 and 4291 (addresses), 3986 and 3987 (URIs and IRIs), 4122 (UUID), 6570 (templates), 6901 (pointers).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::grammar {

struct Format {
  std::string regex;  // matches the whole text
  std::uint32_t max_length;
};

// Nothing for names that the drafts do not define: those are annotations. Throws Refusal for a defined format that no
// automaton can check.
std::optional<Format> find_format(std::string_view name);

}  // namespace quire::grammar
