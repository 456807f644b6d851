#include "server/ops/secret_file.h"

#include <fstream>

namespace quire {

namespace {

constexpr std::size_t kMostBytes = 4096;

}  // namespace

std::optional<std::string> read_secret_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file && !file.eof()) return std::nullopt;
  text.resize(static_cast<std::size_t>(file.gcount()));
  // Editors and `echo` end a file with a line break that is no part of the secret.
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r'))
    text.pop_back();
  return text;
}

}  // namespace quire
