// Finds the shared test material, which the tree does not contain. Any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace quire::test {

// The root of the source tree.
std::filesystem::path source_folder();

// The file or folder `relative` inside the material ($QUIRE_TEST_MATERIAL, else ../shared/material beside the source
// tree); nothing if it is absent.
std::optional<std::filesystem::path> material(const std::string& relative);

// The lines of a text file, gunzipped by name (.gz); fails the running test if it cannot be read.
std::vector<std::string> read_lines(const std::filesystem::path& path);

// The whole file, gunzipped by name (.gz).
std::string read_file(const std::filesystem::path& path);

}  // namespace quire::test

// Ends the test case with a line that names the missing material.
#define QUIRE_REQUIRE_MATERIAL(variable, relative)                                         \
  const auto variable##_found = quire::test::material(relative);                           \
  if (!variable##_found) {                                                                 \
    WARN("skipped: test material '" << (relative) << "' is absent (QUIRE_TEST_MATERIAL)"); \
    return;                                                                                \
  }                                                                                        \
  const std::filesystem::path& variable = *variable##_found
