// Transformer: the decoder of the llama family (llama, qwen2, qwen3) as a graph over a Backend. Engine thread only.
// Invariants: a step within what was reserved allocates nothing; a row's result depends only on its own sequence, so a
// long step is computed in slices of kMaxRows without changing a bit. Sources: arXiv 1706.03762
// (attention), 1910.07467 (RMSNorm), 2002.05202 (SwiGLU), 2104.09864 (RoPE), 2305.13245 (GQA).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/model/model.h"
#include "core/model/model_config.h"
#include "core/model/packed_cache.h"
#include "core/model/weight_sources.h"

namespace quire {

// Weights packed for one backend.
struct TransformerLayer {
  std::unique_ptr<Buffer> attention_norm;
  std::unique_ptr<Linear> qkv;
  std::unique_ptr<Buffer> query_norm;  // null where the model has none
  std::unique_ptr<Buffer> key_norm;
  std::unique_ptr<Linear> attention_output;
  std::unique_ptr<Buffer> ffn_norm;
  std::unique_ptr<Linear> gate_up;
  std::unique_ptr<Linear> ffn_down;
};

struct TransformerWeights {
  std::unique_ptr<Embedding> embedding;
  std::vector<TransformerLayer> layers;
  std::unique_ptr<Buffer> final_norm;
  std::unique_ptr<Linear> head;
};

// Packs every weight. `packed` is told the source of each matrix once it is packed and its file pages are not needed
// any more. `cached` (may be null): weights packed before, taken instead of packing. `writer` (may be null) keeps what
// was packed.
TransformerWeights pack_weights(const WeightSources& sources, Backend& backend,
                                const std::function<void(const WeightSource&)>& packed, const PackedWeights* cached,
                                PackedWriter* writer);
// The matrix products of a model: as many as a cache of packed weights has entries.
std::size_t num_products(const WeightSources& sources);

class Transformer final : public Model {
 public:
  // Rows computed at once: enough that matrices are read seldom, few enough that activations stay small.
  static constexpr std::int64_t kMaxRows = 512;

  // `sources_owner` keeps alive what the embedding views.
  Transformer(const ModelConfig& config, TransformerWeights weights, Backend& backend,
              std::shared_ptr<const void> sources_owner);

  void reserve(std::int64_t max_rows, std::int64_t max_logit_rows) override;
  ModelOutput forward(const StepArrays& arrays, KvStorage& kv) override;

  std::int64_t vocab_size() const override { return config_.vocab_size; }
  std::int64_t hidden_size() const override { return config_.hidden_size; }
  std::int64_t max_context() const override { return config_.max_context; }
  KvLayout kv_layout() const override;

  // Bytes of activations that steps of up to `num_rows` rows with `num_logit_rows` rows of logits need.
  static std::size_t activation_bytes(const ModelConfig& config, std::int64_t num_rows, std::int64_t num_logit_rows);

 private:
  // A matrix with room for a fixed number of rows.
  class Activation {
   public:
    Activation(Backend& backend, std::int64_t cols) : backend_(backend), cols_(cols) {}
    void reserve(std::int64_t count);
    MatrixView rows(std::int64_t count);

   private:
    Backend& backend_;
    std::int64_t cols_;
    std::int64_t capacity_ = 0;
    std::unique_ptr<Buffer> buffer_;
  };

  // Some consecutive rows of a step with the part of its AttentionBatch that covers them.
  struct Slice {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    AttentionBatch attention;
    MatrixView cos;
    MatrixView sin;
  };

  Slice cut(const StepArrays& arrays, std::int64_t begin, std::int64_t end);
  void compute_layer(const TransformerLayer& weights, std::int64_t layer, const Slice& slice, MatrixView x,
                     KvStorage& kv);
  void embed(const StepArrays& arrays, const Slice& slice, MatrixView x);
  // Copies the wanted rows of the slice to their place in `out`; returns how many rows of `out` are there now.
  std::int64_t collect(std::span<const std::int32_t> wanted, const Slice& slice, MatrixView x, MatrixView out);

  ModelConfig config_;
  TransformerWeights weights_;
  Backend& backend_;
  std::shared_ptr<const void> sources_owner_;
  RopeFrequencies rope_;
  std::int64_t query_size_;
  std::int64_t kv_size_;
  float eps_;

  Activation x_;
  Activation qkv_;
  Activation attended_;
  Activation gate_up_;
  Activation cos_;
  Activation sin_;
  Activation head_input_;  // of the rows whose logits are wanted, before the last norm
  Activation hidden_;
  Activation logits_;
  std::vector<std::int32_t> slice_query_start_;
  std::vector<std::int32_t> slice_context_len_;
  std::vector<std::int32_t> slice_wanted_;
};

}  // namespace quire
