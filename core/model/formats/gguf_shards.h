// A GGUF model that is split into files "<name>-00001-of-0000N.gguf": all shards as one GgufFile, with the metadata of
// the first. Immutable after construction; any thread. Source: llama.cpp's split keys. Invariant: every shard is there
// and says of itself what its place among the others asks for; no tensor is in two of them.
#pragma once

#include <filesystem>
#include <memory>

#include "core/model/formats/gguf.h"

namespace quire {

// The file, with the shards that its metadata promises. Throws StartupError, one line, also where `path` is a later
// shard than the first.
std::shared_ptr<const GgufFile> open_gguf(const std::filesystem::path& path);

}  // namespace quire
