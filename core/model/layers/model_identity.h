// ModelIdentity: the value that distinguishes a model's K and V from all others': compared by the disk tier, saved
// slots, the shared store, events of the prefix cache and `quire inspect`; packed weights compare its ModelContent.
// Value types.
// A ModelContent names the bytes of all files that a model was read from, never their paths and times: all shards, the
// tokenizer and configurations too. Reading a file from end to end for that takes about 0.1 s per GB. A start that
// packs weights reads the file anyway, and the hash is computed at the same time. A start that maps packed weights
// takes the hash stored beside them: see KnownContents, and FileStamp for when that is safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/model/formats/files/content_hash.h"
#include "kernels/backend.h"

namespace quire {

class LoadedModel;

// Content of a model's files, with the options that change its results.
struct ModelContent {
  std::string files{};    // hash of their bytes
  std::string options{};  // RoPE as used (LongRoPE's factors depend on max_model_len), and the MTP block

  bool operator==(const ModelContent&) const = default;
};

struct ModelIdentity {
  ModelContent model{};
  ModelContent draft_model{};  // its K and V lie in the same blocks; empty: none
  std::string encoder{};       // hash of its tower's file, and the settings for preparing media; empty: none
  std::string arithmetic{};    // Backend::name()
  std::int64_t block_size = 0;
  KvDType cache_type = KvDType::kF16;
  bool has_window_parts = false;  // window layers have parts of their own

  // All fields with Quire's version, one a line.
  std::string text() const;
  ContentHash key() const;

  bool operator==(const ModelIdentity&) const = default;
};

// Names the content of packed weights.
std::string packed_identity(const ModelContent& model, std::string_view packing);

// A content that differs from every other process's, for a model whose blocks and weights stay in this process.
ModelContent private_content();

// Hash of a file's bytes. The folder keeps it, as ContentReading's; empty: it is not kept. Throws StartupError.
ContentHash content_of(const std::filesystem::path& path, const std::filesystem::path& folder);

// Reads a model's files from end to end on threads of its own, from construction on.
class ContentReading {
 public:
  // Hashes are kept in the folder; empty: they are not.
  ContentReading(std::shared_ptr<const LoadedModel> model, std::filesystem::path folder);
  // Returns the content. Calls `poll`, which may throw, while it waits. Once.
  ModelContent wait(const std::function<void()>& poll = {});

 private:
  std::shared_ptr<const LoadedModel> model_;
  BackgroundWork<ModelContent> work_;
};

}  // namespace quire
