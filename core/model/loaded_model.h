// LoadedModel: everything that a model's file or directory holds, read and checked: configuration, text side, weights'
// sources. Immutable after construction; any thread. open_model maps and checks; build packs the weights for a backend.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/pooling.h"
#include "core/model/model.h"
#include "core/model/packed_cache_options.h"
#include "core/text/tokenizer.h"

namespace quire {

// What generation_config.json or the GGUF's metadata recommends; absent: OpenAI's neutral defaults.
struct GenerationDefaults {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<std::int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
};

struct ModelInfo {
  std::string architecture;  // as GGUF files name it
  std::string name;          // for people
  std::string file_type;     // the type of most weights: "Q4_K"
  std::int64_t num_parameters = 0;
  std::uint64_t file_bytes = 0;
  std::int64_t max_context = 0;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  Pooling pooling = Pooling::kLast;  // of embeddings: what the file says, else the positions that saw the whole text
  KvLayout kv_layout;                // num_blocks, block_size and dtype left at their defaults
  KvSplit kv_split;                  // the same, of layers with a window and of the others
  std::vector<KvGroupSpec> kv_groups;
  std::int64_t state_floats = 0;            // that each sequence keeps of recurrent layers
  std::int64_t num_labels = 0;              // of a classifier: rerankers
  bool is_causal = true;                    // false: a sequence is computed whole, in one step
  bool has_head = true;                     // false: embeddings only
  std::vector<std::string> parts_left_out;  // of the file, which the model does not compute
};

class LoadedModel {
 public:
  virtual ~LoadedModel() = default;
  virtual const ModelInfo& info() const = 0;
  virtual std::shared_ptr<const Tokenizer> tokenizer() const = 0;
  virtual const std::string& chat_template() const = 0;  // empty where the model has none
  virtual const GenerationDefaults& generation_defaults() const = 0;
  // Bytes that build() will keep resident on this backend.
  virtual std::size_t weight_bytes(const Backend& backend) const = 0;
  // Bytes of activations that steps of up to `num_rows` rows with `num_logit_rows` rows of logits need.
  virtual std::size_t activation_bytes(std::int64_t num_rows, std::int64_t num_logit_rows) const = 0;
  // Packs all weights, or takes them from the cache of packed weights; `progress` is told bytes done of bytes in all.
  virtual std::unique_ptr<Model> build(Backend& backend,
                                       const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                                       const PackedCacheOptions& cache = {}) const = 0;
};

// `path`: a GGUF file or a Hugging Face directory. Throws StartupError with one clear line. Without `with_text` the
// vocabulary is not read: tokenizer() is null. `served_context`: the most tokens of a sequence, where the configuration
// bounds them below what the file says (LongRoPE's factors depend on it); 0: as the file says.
std::shared_ptr<const LoadedModel> open_model(const std::filesystem::path& path, bool with_text = true,
                                              std::int64_t served_context = 0);

// The text side alone of the same paths (vocabulary-only GGUF files, or a folder with just tokenizer.json, included).
std::shared_ptr<const Tokenizer> open_tokenizer(const std::filesystem::path& path);

}  // namespace quire
