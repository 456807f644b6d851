// The web page's files, embedded in the binary when it is built (cmake/embed.cmake). Immutable; any thread.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

namespace quire::web {

// The bytes of server/web/<name>; nothing for another name.
std::optional<std::string_view> find_asset(std::string_view name);

}  // namespace quire::web
