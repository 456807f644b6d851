// Reads the folders of tiers, and damages their files. One thread at a time.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace quire::test {

inline std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_directory()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

inline std::vector<std::filesystem::path> records_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files = files_in(folder);
  std::erase_if(files, [](const std::filesystem::path& file) { return file.extension() != ".kv"; });
  return files;
}

inline void flip_bit(const std::filesystem::path& path, std::streamoff offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const int byte = file.get();
  file.seekp(offset);
  file.put(static_cast<char>(byte ^ 1));
}

}  // namespace quire::test
