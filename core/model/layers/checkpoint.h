// Checkpoint: the result of reading a model in one file format, for LoadedModel. Immutable after construction; any
// thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/architectures/spec_reader.h"
#include "core/model/formats/gguf/gguf.h"
#include "core/model/layers/loaded_model.h"
#include "core/model/layers/weight_sources.h"
#include "core/model/parts/model_config.h"

namespace quire {

struct Checkpoint {
  ModelSpec spec;
  WeightSources weights;  // views into `files`
  std::string name;       // for people
  std::uint64_t file_bytes = 0;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string chat_template;
  GenerationDefaults generation;
  Pooling pooling = Pooling::kNone;  // kNone: the file does not say
  std::vector<std::string> parts_left_out;
  std::vector<std::string> warnings;
  std::shared_ptr<const void> files;
  std::vector<const MappedFile*> mappings;  // the files' mappings
  std::string texts;                        // hashes of the small files beside them, by name
  // Hints to the system that these bytes of `files` are not needed soon.
  std::function<void(std::span<const std::byte>)> release;
};

// Each throws StartupError with one line that begins with the path (`where`).
Checkpoint read_gguf_checkpoint(const std::filesystem::path& path, bool with_text = true,
                                const SpecWishes& wishes = {});
Checkpoint make_gguf_checkpoint(const std::shared_ptr<const GgufFile>& file, const std::string& where,
                                bool with_text = true, const SpecWishes& wishes = {});
Checkpoint read_hf_checkpoint(const std::filesystem::path& directory, bool with_text = true,
                              const SpecWishes& wishes = {});

}  // namespace quire
