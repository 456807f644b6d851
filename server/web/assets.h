// The web page's files and the libraries it uses, embedded in the binary when it is built (cmake/web.cmake). Immutable;
// any thread.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace quire::web {

struct Asset {
  std::string_view name;  // "index.html", "lib/katex.js"
  std::string_view etag;  // with its quotes: a hash of the content
  std::string_view bytes;
  bool compressed = false;  // `bytes` are in gzip's format
};

std::optional<Asset> find_asset(std::string_view name);
std::span<const Asset> all_assets();

}  // namespace quire::web
