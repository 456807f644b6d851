// ModelIdentity: the value that tells one model's K and V from all others': compared by the disk tier, saved slots, the
// shared store, events of the prefix cache and `quire inspect`; packed weights compare its ModelContent. Value types.
//
// A ModelContent names the bytes of all files that a model was read from, never their paths and times: all shards, the
// tokenizer and configurations too. Reading a file from end to end for that takes about 0.1 s per GB. A start that
// packs weights reads the file anyway, and the hash is computed beside it. A start that maps packed weights takes the
// hash that is remembered beside them: see KnownContents, and FileStamp for when that is safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/model/formats/content_hash.h"
#include "kernels/backend.h"

namespace quire {

class LoadedModel;

// One model's files, and what options make of them.
struct ModelContent {
  std::string files{};    // hash of their bytes
  std::string options{};  // RoPE as it is used (LongRoPE's factors depend on max_model_len), and the MTP block

  bool operator==(const ModelContent&) const = default;
};

struct ModelIdentity {
  ModelContent model{};
  ModelContent draft_model{};  // its K and V lie in the same blocks; empty: none
  std::string encoder{};       // hash of its tower's file, and how media are prepared; empty: it takes none
  std::string arithmetic{};    // Backend::name()
  std::int64_t block_size = 0;
  KvDType cache_type = KvDType::kF16;
  bool has_window_parts = false;  // layers with a window keep theirs apart

  // All of it with Quire's version, one part a line.
  std::string text() const;
  ContentHash key() const;

  bool operator==(const ModelIdentity&) const = default;
};

// Names the content of packed weights.
std::string packed_identity(const ModelContent& model, std::string_view packing);

// A content that no other process has, for a model whose blocks and weights stay in this one.
ModelContent private_content();

// Reads a model's files from end to end on threads of its own, from construction on.
class ContentReading {
 public:
  // Hashes are remembered in the folder; empty: they are not.
  ContentReading(std::shared_ptr<const LoadedModel> model, std::filesystem::path folder);
  // The content. Calls `poll`, which may throw, while it waits. Once.
  ModelContent wait(const std::function<void()>& poll = {});

 private:
  std::shared_ptr<const LoadedModel> model_;
  BackgroundWork<ModelContent> work_;
};

}  // namespace quire
