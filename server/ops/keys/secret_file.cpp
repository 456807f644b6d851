#include "server/ops/keys/secret_file.h"

#include "core/base/files/regular_file.h"

namespace quire {

namespace {

constexpr std::size_t kMostBytes = 4096;

}  // namespace

tl::expected<std::string, std::string> read_secret_file(const std::string& path) {
  auto text = read_regular_file(path, kMostBytes);
  // Editors and `echo` end a file with a line break that is no part of the secret.
  while (text && !text->empty() && (text->back() == '\n' || text->back() == '\r'))
    text->pop_back();
  return text;
}

}  // namespace quire
