// A reader of PNG files for tests: 8 bits, gray, RGB, palette or RGBA without interlacing; alpha is dropped.
#pragma once

#include <filesystem>

#include "core/content/picture.h"

namespace quire::test {

// Throws std::runtime_error where the file is not of that kind.
Picture read_png(const std::filesystem::path& path);

}  // namespace quire::test
