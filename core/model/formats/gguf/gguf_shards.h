// A GGUF model that is split into files "<name>-00001-of-0000N.gguf": all shards as one GgufFile, with the metadata of
// the first. Immutable after construction; any thread. Source: llama.cpp's split keys. Invariant: every shard is
// present and its own metadata agree with its place; no tensor is in two shards.
#pragma once

#include <filesystem>
#include <memory>

#include "core/model/formats/gguf/gguf.h"

namespace quire {

// The file, with the shards that its metadata requires. Throws StartupError, one line, also if `path` is a later shard
// than the first.
std::shared_ptr<const GgufFile> open_gguf(const std::filesystem::path& path);

}  // namespace quire
