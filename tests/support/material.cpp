#include "tests/support/material.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <sstream>

namespace quire::test {

std::filesystem::path source_folder() {
  return QUIRE_SOURCE_DIR;
}

std::optional<std::filesystem::path> material(const std::string& relative) {
  const char* root = std::getenv("QUIRE_TEST_MATERIAL");
  const std::filesystem::path base =
      root != nullptr ? std::filesystem::path(root) : source_folder() / "../shared/material";
  std::error_code ignored;
  const auto path = base / relative;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  return path;
}

std::string read_file(const std::filesystem::path& path) {
  // gzread passes plain files through unchanged.
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) FAIL("cannot open " << path);
  std::string text;
  char buffer[1 << 16];
  for (int n = 0; (n = gzread(file, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  gzclose(file);
  return text;
}

std::vector<std::string> read_lines(const std::filesystem::path& path) {
  std::istringstream stream(read_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

}  // namespace quire::test
