// LoadedModel: the contents of a model's file or directory, read and checked: configuration, text side, weights'
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
#include "core/model/layers/model.h"
#include "core/model/layers/model_identity.h"
#include "core/model/parts/model_config.h"
#include "core/model/parts/model_spec.h"
#include "core/text/tokenizer.h"
#include "kernels/backend.h"
#include "kernels/device_step_bytes.h"

namespace quire {

struct Checkpoint;

struct ModelInfo {
  std::string architecture;  // GGUF's name
  std::string name;          // for people
  std::string file_type;     // the type of most weights: "Q4_K"
  std::int64_t num_parameters = 0;
  std::uint64_t file_bytes = 0;
  std::int64_t max_context = 0;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t per_layer_size = 0;     // width of each layer's own embeddings of tokens; 0: it has none
  std::int64_t positions_per_row = 1;  // numbers in a position of a media row: 3 with M-RoPE
  Pooling pooling = Pooling::kLast;    // for embeddings: the file's, else the positions that saw all the text
  KvLayout kv_layout;                  // num_blocks, block_size and dtype left at their defaults
  KvSplit kv_split;                    // the same layout, split into layers with a window and the others
  std::vector<KvGroupSpec> kv_groups;
  std::int64_t state_floats = 0;            // recurrent layers' state of a sequence
  std::int64_t num_labels = 0;              // labels of a classifier: rerankers
  bool is_causal = true;                    // false: a sequence is computed whole, in one step
  bool has_head = true;                     // false: embeddings only
  bool has_next_tokens = false;             // the block that predicts the token after next is present and wanted
  std::vector<std::string> parts_left_out;  // parts of the file that the model does not compute
  std::vector<std::string> warnings;        // for people: settings of the file that are not applied
};

inline constexpr std::int64_t kDefaultPackedBytes = std::int64_t{64} << 30;

// Cache of packed weights between starts.
struct PackedCacheOptions {
  std::filesystem::path folder{};                // empty: no cache
  std::int64_t max_bytes = kDefaultPackedBytes;  // limit of all files in the folder
  ModelContent model{};
};

class LoadedModel {
 public:
  explicit LoadedModel(Checkpoint checkpoint);
  ~LoadedModel();
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  const ModelInfo& info() const { return info_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  std::shared_ptr<const Tokenizer> tokenizer() const;
  const std::string& chat_template() const;  // empty: the model has none
  const GenerationDefaults& generation_defaults() const;
  // Bytes that build() will keep resident on this backend; num_ranks: the most on any of that many devices.
  std::size_t weight_bytes(const Backend& backend, int num_ranks = 1) const;
  // Bytes of activations there for steps of up to `num_rows` rows with `num_logit_rows` rows of logits.
  std::size_t activation_bytes(std::int64_t num_rows, std::int64_t num_logit_rows, int num_ranks = 1) const;
  // The bounds of a step, completed by the model's shape.
  StepBounds step_bounds(StepBounds step) const;
  // Throws StartupError if that many devices cannot compute the model together.
  void require_ranks(int num_ranks) const;
  // Packs all weights, or takes them from the cache of packed weights; `progress` receives bytes done and bytes in all.
  // first_kv_layer: the model's first layer in the KV storage; earlier layers are another model's.
  std::unique_ptr<Model> build(Backend& backend, const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                               const PackedCacheOptions& cache = {}, std::int64_t first_kv_layer = 0) const;

 private:
  const std::unique_ptr<const Checkpoint> checkpoint_;
  const ModelInfo info_;
};

// `path`: a GGUF file or a Hugging Face directory. Throws StartupError with one clear line. Without `with_text` the
// vocabulary is not read: tokenizer() is null.
std::shared_ptr<const LoadedModel> open_model(const std::filesystem::path& path, bool with_text = true,
                                              const SpecWishes& wishes = {});

// Operations that a model requires beyond those of a plain decoder. Throws StartupError, one line that names the first
// that the backend does not compute.
void require_abilities(const ModelSpec& spec, Backend& backend);
// Checks a cache of the layout's type and heads in the same way.
void require_cache(const KvLayout& layout, const Backend& backend);

}  // namespace quire
