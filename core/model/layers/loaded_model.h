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
#include "core/model/architectures/model_config.h"
#include "core/model/layers/model.h"
#include "core/model/layers/model_identity.h"
#include "core/text/tokenizer.h"
#include "kernels/device_step_bytes.h"

namespace quire {

struct Checkpoint;

struct ModelInfo {
  std::string architecture;  // as GGUF files name it
  std::string name;          // for people
  std::string file_type;     // the type of most weights: "Q4_K"
  std::int64_t num_parameters = 0;
  std::uint64_t file_bytes = 0;
  std::int64_t max_context = 0;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t per_layer_size = 0;     // width of each layer's own embeddings of tokens; 0: it has none
  std::int64_t positions_per_row = 1;  // numbers of a position in rows of media: 3 with M-RoPE
  Pooling pooling = Pooling::kLast;    // of embeddings: what the file says, else the positions that saw the whole text
  KvLayout kv_layout;                  // num_blocks, block_size and dtype left at their defaults
  KvSplit kv_split;                    // the same, of layers with a window and of the others
  std::vector<KvGroupSpec> kv_groups;
  std::int64_t state_floats = 0;            // that each sequence keeps of recurrent layers
  std::int64_t num_labels = 0;              // of a classifier: rerankers
  bool is_causal = true;                    // false: a sequence is computed whole, in one step
  bool has_head = true;                     // false: embeddings only
  bool has_next_tokens = false;             // the block that predicts the token after next is there, and wanted
  std::vector<std::string> parts_left_out;  // of the file, which the model does not compute
  std::vector<std::string> warnings;        // settings of the file that are not applied, for people
};

inline constexpr std::int64_t kDefaultPackedBytes = std::int64_t{64} << 30;

// Where packed weights are kept between starts.
struct PackedCacheOptions {
  std::filesystem::path folder{};                // empty: no cache
  std::int64_t max_bytes = kDefaultPackedBytes;  // of all files in the folder
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
  const std::string& chat_template() const;  // empty where the model has none
  const GenerationDefaults& generation_defaults() const;
  // Bytes that build() will keep resident on this backend; num_ranks: on each of so many devices, at most.
  std::size_t weight_bytes(const Backend& backend, int num_ranks = 1) const;
  // Bytes of activations that steps of up to `num_rows` rows with `num_logit_rows` rows of logits need there.
  std::size_t activation_bytes(std::int64_t num_rows, std::int64_t num_logit_rows, int num_ranks = 1) const;
  // The bounds of a step with what the model's shape adds.
  StepBounds step_bounds(StepBounds step) const;
  // Throws StartupError where so many devices cannot compute the model together.
  void require_ranks(int num_ranks) const;
  // Packs all weights, or takes them from the cache of packed weights; `progress` receives bytes done of bytes in all.
  // first_kv_layer: of the KV storage, the model's first; those before are another model's.
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

}  // namespace quire
