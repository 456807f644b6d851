// ParallelModel: a model that several devices compute together (rank_parts.h), each rank's share a Transformer over its
// own backend, enqueued by the rank's own thread. Engine thread only. Invariants: every rank runs the same operations
// on the same rows in the same order, and holds the same hidden states; results are rank 0's.
#pragma once

#include <memory>
#include <vector>

#include "core/model/layers/transformer.h"
#include "kernels/parallel/parallel_backend.h"

namespace quire {

struct Checkpoint;

class ParallelModel final : public Model {
 public:
  // spec: the whole model's, of which each rank has a share.
  ParallelModel(const ModelSpec& spec, std::vector<std::unique_ptr<Transformer>> ranks, ParallelBackend& backend);

  void reserve(std::int64_t max_rows, std::int64_t max_logit_rows) override;
  ModelOutput forward(const StepArrays& arrays, KvStorage& kv) override;

  bool has_head() const override { return has_head_; }
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::int64_t hidden_size() const override { return ranks_.front()->hidden_size(); }
  std::int64_t positions_per_row() const override { return ranks_.front()->positions_per_row(); }
  std::int64_t max_context() const override { return ranks_.front()->max_context(); }
  KvLayout kv_layout() const override { return layout_; }
  KvSplit kv_split() const override { return split_; }

 private:
  ParallelBackend& backend_;
  const bool has_head_;
  const std::int64_t vocab_size_;
  const KvLayout layout_;
  const KvSplit split_;
  std::vector<std::unique_ptr<Transformer>> ranks_;
};

// Packs each rank's weights on the rank's thread. `packed` receives the source of each matrix once it is packed, from a
// single thread at a time.
std::unique_ptr<Model> build_parallel(const Checkpoint& checkpoint, ParallelBackend& backend,
                                      const std::function<void(const WeightSource&)>& packed,
                                      std::int64_t first_kv_layer);

}  // namespace quire
