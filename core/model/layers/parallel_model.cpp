#include "core/model/layers/parallel_model.h"

#include <mutex>
#include <utility>

#include "core/model/layers/checkpoint.h"
#include "core/model/layers/rank_parts.h"

namespace quire {

namespace {

std::size_t rank_index(int rank) {
  return static_cast<std::size_t>(rank);
}

// A rank's share of a storage; null: no storage.
KvStorage* part_of(KvStorage* storage, int rank) {
  return storage == nullptr ? nullptr : &static_cast<ParallelKvStorage*>(storage)->rank(rank);
}

}  // namespace

ParallelModel::ParallelModel(const ModelSpec& spec, std::vector<std::unique_ptr<Transformer>> ranks,
                             ParallelBackend& backend)
    : backend_(backend),
      has_head_(spec.has_head),
      vocab_size_(spec.config.vocab_size),
      layout_(kv_layout_of(spec)),
      split_(kv_split_of(spec)),
      ranks_(std::move(ranks)) {}

// Waits first: reserving frees buffers that other ranks may still copy from.
void ParallelModel::reserve(std::int64_t max_rows, std::int64_t max_logit_rows) {
  backend_.synchronize();
  for (const auto& rank : ranks_)
    rank->reserve(max_rows, max_logit_rows);
}

ModelOutput ParallelModel::forward(const StepArrays& arrays, KvStorage& kv) {
  struct Pass {
    const StepArrays& arrays;
    KvStorage& kv;
    std::vector<std::unique_ptr<Transformer>>& ranks;
    ModelOutput out = {};
  } pass{arrays, kv, ranks_};
  backend_.run([&pass](int rank) {  // a single captured reference, so that the function object allocates nothing
    StepArrays own = pass.arrays;
    own.window_storage = part_of(own.window_storage, rank);
    if (rank > 0) own.hidden_rows = own.label_rows = {};
    const ModelOutput made = pass.ranks[rank_index(rank)]->forward(own, *part_of(&pass.kv, rank));
    if (rank == 0) pass.out = made;
  });
  return pass.out;
}

std::unique_ptr<Model> build_parallel(const Checkpoint& checkpoint, ParallelBackend& backend,
                                      const std::function<void(const WeightSource&)>& packed,
                                      std::int64_t first_kv_layer) {
  const int num_ranks = backend.num_ranks();
  std::vector<std::unique_ptr<Transformer>> ranks(rank_index(num_ranks));
  std::mutex mutex;
  const auto packed_by_one = [&](const WeightSource& matrix) {
    const std::lock_guard lock(mutex);
    packed(matrix);
  };
  backend.run([&](int rank) {
    const RankPart part = part_of_rank(checkpoint.spec, checkpoint.weights, rank, num_ranks);
    PackedModel weights = pack_weights(part.weights, backend.rank(rank), packed_by_one, nullptr, nullptr);
    ranks[rank_index(rank)] = std::make_unique<Transformer>(part.spec, std::move(weights), backend.rank(rank),
                                                            checkpoint.files, first_kv_layer, backend.sum(rank));
  });
  return std::make_unique<ParallelModel>(checkpoint.spec, std::move(ranks), backend);
}

}  // namespace quire
