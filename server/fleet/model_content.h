// What tells a model from every other one on any machine: a hash of its files' bytes. Any thread.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace quire {

// Of a GGUF file, with its other shards, or of a directory's files. Reads all of them; looks at `interrupted` on the
// way and throws Interrupted. Throws StartupError where a file cannot be read.
std::string content_version(const std::filesystem::path& path, const std::function<bool()>& interrupted);

}  // namespace quire
